// logits_sample and sample: the same draw of each row, fed by the projection and by given logits.
#include "ops/sample.hpp"

#include "consumers/sample.hpp"
#include "core/read.hpp"
#include "dispatch/tables.hpp"

namespace lmhead {
namespace {

template <class Candidate>
RowFault logits_sample_as(const Rows& hidden, const Rows& weight, const HeadOptions& head, const SampleOptions& options,
                          const SampleTarget& out, int threads) {
  using T = typename Candidate::T;
  const KernelTable& kernels = table();
  const Projection projection(kernels, hidden, weight);
  Sampling<Candidate> sampling(kernels, options, weight.n_rows, out, threads);
  fold<T>(kernels, projection, Adjust<T>{static_cast<const T*>(head.bias), head.softcap, head.scale}, sampling, threads);
  return sampling.first_fault();
}

// Ids a worker takes of a row at a time: 64 KiB of float32, some 10 microseconds.
constexpr int64_t kIdsPerTask = 1 << 14;
// Elements below which one thread is done before a second has woken.
constexpr double kSerialElements = 1 << 15;
// Rows whose states are held at once.
constexpr int64_t kRowsPerBlock = 64;

template <class Candidate>
RowFault sample_as(const Rows& logits, const SampleOptions& options, const SampleTarget& out, int threads) {
  using T = typename Candidate::T;
  const KernelTable& kernels = table();
  if (double(logits.n_rows) * double(logits.width) < kSerialElements) threads = 1;
  const Reader<T> reader(kernels, logits);
  Sampling<Candidate> sampling(kernels, options, logits.width, out, threads);
  struct Scratch {
    Buffer<T> run;
    Buffer<char> temporary;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  for (int64_t first = 0; first < logits.n_rows; first += kRowsPerBlock) {
    const int64_t n_rows = std::min(kRowsPerBlock, logits.n_rows - first), n_runs = ceil_div(logits.width, kIdsPerTask);
    sampling.begin(first, n_rows);
    run_tasks(threads, n_rows * n_runs, [&](int worker, int64_t task) {
      Scratch& mine = scratch[static_cast<size_t>(worker)];
      const int64_t row = first + task / n_runs, id = task % n_runs * kIdsPerTask, n = std::min(kIdsPerTask, logits.width - id);
      T* run = reader.in_place(row) ? nullptr : mine.run.reserve(n);
      sampling.stretch(worker, row, reader.read(row, id, n, run, mine.temporary), n, id);
    });
    sampling.finish(first, n_rows);
  }
  return sampling.first_fault();
}

}  // namespace

RowFault logits_sample(const Rows& hidden, const Rows& weight, const HeadOptions& head, const SampleOptions& options, const SampleTarget& out,
                       int threads) {
  if (weight.dtype == DType::float64) return logits_sample_as<LongCandidate<double>>(hidden, weight, head, options, out, threads);
  if (weight.n_rows < kShortIds) return logits_sample_as<ShortCandidate>(hidden, weight, head, options, out, threads);
  return logits_sample_as<LongCandidate<float>>(hidden, weight, head, options, out, threads);
}

RowFault sample(const Rows& logits, const SampleOptions& options, const SampleTarget& out, int threads) {
  if (logits.dtype == DType::float64) return sample_as<LongCandidate<double>>(logits, options, out, threads);
  if (logits.width < kShortIds) return sample_as<ShortCandidate>(logits, options, out, threads);
  return sample_as<LongCandidate<float>>(logits, options, out, threads);
}

}  // namespace lmhead
