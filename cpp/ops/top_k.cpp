// logits_topk and topk: the same lists, fed by the projection and by given logits.
#include "consumers/top_k.hpp"

#include "core/read.hpp"
#include "dispatch/tables.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

template <class Candidate>
void logits_top_k_as(const Rows& hidden, const Rows& weight, const HeadOptions& options, const Allowed& allowed, const TopKTarget& out,
                     int threads) {
  const KernelTable& kernels = table();
  using T = typename Candidate::T;
  const Projection projection(kernels, hidden, weight);
  TopK<Candidate> best(kernels, out, threads, allowed);
  fold<T>(kernels, projection, Adjust<T>{static_cast<const T*>(options.bias), options.softcap, options.scale}, best, threads, allowed);
}

// Ids a worker takes of a row that is shared out: 256 KiB of float32, some 10 microseconds.
constexpr int64_t kIdsPerTask = 1 << 16;
// Elements below which one thread is done before a second has woken.
constexpr int64_t kSerialElements = 1 << 16;

template <class Candidate>
void top_k_as(const Rows& logits, const TopKTarget& out, int threads) {
  const KernelTable& kernels = table();
  using T = typename Candidate::T;
  const Reader<T> reader(kernels, logits);
  struct Scratch {
    TopList<Candidate> list;
    Buffer<T> run;
    Buffer<char> temporary;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  const auto add = [&](Scratch& mine, int64_t row, int64_t first, int64_t n) {
    if (reader.in_place(row)) return mine.list.add(kernels, reader.row(row) + first, n, first);
    T* run = mine.run.reserve(kBlockIds);
    for (int64_t id = first; id < first + n; id += kBlockIds) {
      const int64_t count = std::min(kBlockIds, first + n - id);
      mine.list.add(kernels, reader.read(row, id, count, run, mine.temporary), count, id);
    }
  };
  if (logits.n_rows < threads && logits.width >= 4 * kIdsPerTask) {
    for (int64_t row = 0; row < logits.n_rows; ++row) {
      for (Scratch& mine : scratch) mine.list.start(out.k);
      run_tasks(threads, ceil_div(logits.width, kIdsPerTask), [&](int worker, int64_t task) {
        add(scratch[static_cast<size_t>(worker)], row, task * kIdsPerTask, std::min(kIdsPerTask, logits.width - task * kIdsPerTask));
      });
      for (size_t worker = 1; worker < scratch.size(); ++worker) scratch[0].list.take(scratch[worker].list);
      out.put(row, scratch[0].list);
    }
    return;
  }
  const bool small = double(logits.n_rows) * double(logits.width) < kSerialElements;
  run_tasks(small ? 1 : threads, logits.n_rows, [&](int worker, int64_t row) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    mine.list.start(out.k);
    add(mine, row, 0, logits.width);
    out.put(row, mine.list);
  });
}

}  // namespace

void logits_top_k(const Rows& hidden, const Rows& weight, const HeadOptions& options, const Allowed& allowed, const TopKTarget& out, int threads) {
  if (out.k == 0) return;
  const int64_t n_ids = allowed.all() ? weight.n_rows : allowed.n_ids();
  if (weight.dtype == DType::float64) logits_top_k_as<LongCandidate<double>>(hidden, weight, options, allowed, out, threads);
  else if (n_ids < kShortIds) logits_top_k_as<ShortCandidate>(hidden, weight, options, allowed, out, threads);
  else logits_top_k_as<LongCandidate<float>>(hidden, weight, options, allowed, out, threads);
}

void top_k(const Rows& logits, const TopKTarget& out, int threads) {
  if (out.k == 0) return;
  if (logits.dtype == DType::float64) top_k_as<LongCandidate<double>>(logits, out, threads);
  else if (logits.width < kShortIds) top_k_as<ShortCandidate>(logits, out, threads);
  else top_k_as<LongCandidate<float>>(logits, out, threads);
}

}  // namespace lmhead
