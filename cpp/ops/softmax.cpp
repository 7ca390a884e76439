// softmax, log_softmax and logsumexp: the blocks of a row become (max, rest), then a second pass over what is still in cache
// writes the row. Rows are shared out; the blocks of a row are where there are fewer rows than threads.
#include <algorithm>

#include "consumers/log_sum_exp.hpp"
#include "core/buffer.hpp"
#include "core/parallel.hpp"
#include "core/read.hpp"
#include "dispatch/tables.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

enum class Result { softmax, log_softmax, log_sum_exp };

// Elements below which one thread is done before a second has woken.
constexpr double kSerialElements = 1 << 15;
// Blocks of one task where a row is shared out: 16,384 ids, a few microseconds.
constexpr int64_t kBlocksPerTask = 64;
// Results larger than this go past the caches: what stays of them there would be pushed out before anyone reads it.
// A quarter of the last-level cache of a small server.
constexpr int64_t kStreamingBytes = 8 * 1024 * 1024;

template <class T>
class RowPass {
 public:
  RowPass(const KernelTable& kernels, const Rows& logits, double temperature, Result result, const Target& out)
      : kernels_(row_kernels<T>(kernels)), reader_(kernels, logits), logits_(logits), temperature_(temperature),
        inverse_(inverse_temperature_of<T>(temperature)), result_(result), out_(out),
        n_blocks_(ceil_div(logits.width, kBlockIds)),
        streaming_(double(logits.n_rows) * double(logits.width) * sizeof(T) >= kStreamingBytes && out.template contiguous_rows<T>()) {}

  // What a worker needs to convert a block.
  struct Conversion {
    Buffer<T> block;
    Buffer<char> temporary;
  };
  struct Scratch {
    Buffer<T> values;  // exps of the row (softmax), or its logits where log-softmax has to convert them
    Buffer<T> result;  // where the output's rows are not contiguous
    Buffer<T> factors;
    Buffer<BlockSum<T>> blocks;
    Conversion conversion;
  };

  int64_t n_blocks() const { return n_blocks_; }

  void reserve(Scratch& s) const {
    s.blocks.reserve(n_blocks_);
    if (result_ == Result::softmax) s.factors.reserve(n_blocks_);
    if (result_ != Result::log_sum_exp && !out_.template contiguous_rows<T>()) s.result.reserve(logits_.width);
  }
  // Room for the values of a row, of which a task fills a part.
  void reserve_values(Scratch& s, int64_t row) const {
    if (result_ == Result::softmax || (result_ == Result::log_softmax && !reader_.in_place(row))) s.values.reserve(logits_.width);
  }

  // The sums of blocks [first, last) of a row.
  void sum_blocks(int64_t row, int64_t first, int64_t last, Scratch& s, Conversion& mine) const {
    const auto sum = [&](int64_t block, int64_t end, const T* z) {
      const int64_t id = block * kBlockIds;
      kernels_.block_sums(z, std::min(end * kBlockIds, logits_.width) - id, inverse_,
                          result_ == Result::softmax ? s.values.get() + id : nullptr, s.blocks.get() + block);
    };
    if (reader_.in_place(row)) return sum(first, last, reader_.row(row) + first * kBlockIds);
    for (int64_t b = first; b < last; ++b) {  // a converted block is summed while it is in L1
      const int64_t id = b * kBlockIds;
      T* to = result_ == Result::log_softmax ? s.values.get() + id : mine.block.reserve(kBlockIds);
      sum(b, b + 1, reader_.read(row, id, std::min(kBlockIds, logits_.width - id), to, mine.temporary));
    }
  }

  BlockSum<T> merge(Scratch& s) const {
    return kernels_.merge_sums(s.blocks.get(), n_blocks_, inverse_, result_ == Result::softmax ? s.factors.get() : nullptr);
  }

  void write_sum(int64_t row, const BlockSum<T>& sum) const {
    const T value = log_sum_exp_of(sum, temperature_);
    out_.put(row, 0, &value, 1);
  }

  // Blocks [first, last) of the result.
  void write_blocks(int64_t row, int64_t first, int64_t last, const BlockSum<T>& sum, Scratch& s) const {
    const int64_t id = first * kBlockIds, n = std::min(last * kBlockIds, logits_.width) - id;
    const bool direct = out_.template contiguous_rows<T>();
    // The next row is fetched while this one is written, where the caller's rows are shared out one by one.
    const bool has_next = streaming_ && last - first == n_blocks_ && row + 1 < logits_.n_rows && reader_.in_place(row + 1);
    const RowOut<T> to{direct ? reinterpret_cast<T*>(out_.row(row)) + id : s.result.get() + id, n, streaming_,
                       has_next ? reader_.row(row + 1) : nullptr};
    if (!is_finite_sum(sum)) std::fill(to.data, to.data + n, std::numeric_limits<T>::quiet_NaN());
    else if (result_ == Result::softmax)
      kernels_.scale_exps(s.values.get() + id, s.factors.get() + first, static_cast<T>(1 / (1 + double(sum.rest))), to);
    else
      kernels_.shift_logits((reader_.in_place(row) ? reader_.row(row) : s.values.get()) + id, sum.max, inverse_, log_sum_of(sum), to);
    if (!direct) out_.put(row, id, to.data, n);
  }

  void whole_row(int64_t row, Scratch& s) const {
    reserve_values(s, row);
    sum_blocks(row, 0, n_blocks_, s, s.conversion);
    const BlockSum<T> sum = merge(s);
    if (result_ == Result::log_sum_exp) write_sum(row, sum);
    else write_blocks(row, 0, n_blocks_, sum, s);
  }

 private:
  const RowKernels<T>& kernels_;
  const Reader<T> reader_;
  const Rows& logits_;
  double temperature_;
  T inverse_;
  Result result_;
  const Target& out_;
  int64_t n_blocks_;
  bool streaming_;
};

template <class T>
void shared_rows(const RowPass<T>& pass, const Rows& logits, Result result, int threads) {
  typename RowPass<T>::Scratch s;
  std::vector<typename RowPass<T>::Conversion> conversions(static_cast<size_t>(threads));
  pass.reserve(s);
  const int64_t n_tasks = ceil_div(pass.n_blocks(), kBlocksPerTask);
  const auto end_of = [&](int64_t task) { return std::min(pass.n_blocks(), (task + 1) * kBlocksPerTask); };
  for (int64_t row = 0; row < logits.n_rows; ++row) {
    pass.reserve_values(s, row);
    run_tasks(threads, n_tasks, [&](int worker, int64_t task) {
      pass.sum_blocks(row, task * kBlocksPerTask, end_of(task), s, conversions[static_cast<size_t>(worker)]);
    });
    const BlockSum<T> sum = pass.merge(s);
    if (result == Result::log_sum_exp) pass.write_sum(row, sum);
    else
      run_tasks(threads, n_tasks, [&](int, int64_t task) { pass.write_blocks(row, task * kBlocksPerTask, end_of(task), sum, s); });
  }
}

template <class T>
void row_family(const Rows& logits, double temperature, Result result, const Target& out, int threads) {
  const RowPass<T> pass(table(), logits, temperature, result, out);
  if (logits.n_rows < threads && pass.n_blocks() >= 2 * kBlocksPerTask) return shared_rows(pass, logits, result, threads);
  if (double(logits.n_rows) * double(logits.width) < kSerialElements) threads = 1;
  std::vector<typename RowPass<T>::Scratch> scratch(static_cast<size_t>(threads));
  run_tasks(threads, logits.n_rows, [&](int worker, int64_t row) {
    auto& mine = scratch[static_cast<size_t>(worker)];
    pass.reserve(mine);
    pass.whole_row(row, mine);
  });
}

void dispatch(const Rows& logits, double temperature, Result result, const Target& out, int threads) {
  if (logits.dtype == DType::float64) row_family<double>(logits, temperature, result, out, threads);
  else row_family<float>(logits, temperature, result, out, threads);
}

}  // namespace

void softmax(const Rows& logits, double temperature, const Target& out, int threads) {
  dispatch(logits, temperature, Result::softmax, out, threads);
}

void log_softmax(const Rows& logits, double temperature, const Target& out, int threads) {
  dispatch(logits, temperature, Result::log_softmax, out, threads);
}

void log_sum_exp(const Rows& logits, double temperature, const Target& out, int threads) {
  dispatch(logits, temperature, Result::log_sum_exp, out, threads);
}

}  // namespace lmhead
