// softmax, log_softmax and logsumexp: the blocks of a row become (max, rest), then a second pass over what is still in cache
// writes the row. Rows are shared out; the blocks of a row are where there are fewer rows than threads. Large results are written
// past the caches, a row behind the sums, in turns of a few blocks: memory then reads and writes at the same time.
#include <algorithm>
#include <utility>
#include <vector>

#include "consumers/log_sum_exp.hpp"
#include "core/buffer.hpp"
#include "core/float_range.hpp"
#include "core/parallel.hpp"
#include "core/read.hpp"
#include "core/row_kernels.hpp"
#include "dispatch/tables.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

enum class Result { softmax, log_softmax, log_sum_exp };

// Elements below which one thread is done before a second has woken.
constexpr double kSerialElements = 1 << 15;
// Blocks of one task where a row is shared out: 16,384 ids, a few microseconds.
constexpr int64_t kBlocksPerTask = 64;
// Blocks of one turn: 16 KiB of float32. Turns of 2 KiB take 1.4 times as long, whole rows 1.05 times (measured at 512 x 50257).
constexpr int64_t kBlocksPerTurn = 16;
// Rows of a task whose rows are written in turns; the first of them is read and the last one written alone.
constexpr int64_t kRowsInTurns = 16;
// Results larger than this go past the caches: what stays of them there would be pushed out before anyone reads it.
// A quarter of the last-level cache of a small server.
constexpr int64_t kStreamingBytes = 8 * 1024 * 1024;

// What a worker needs to convert a block.
template <class T>
struct Conversion {
  Buffer<T> block;
  Buffer<char> temporary;
};

// A row between its two passes.
template <class T>
struct RowState {
  Buffer<T> values;  // exps of the row (softmax), or its logits where log-softmax has to convert them
  Buffer<T> result;  // where the output's rows are not contiguous
  Buffer<T> factors;
  Buffer<T> maxima, rests;  // of its blocks
  LogSum<T> sum;

  BlockSums<T> blocks_from(int64_t block) const { return {maxima.get() + block, rests.get() + block}; }
};

template <class T>
class RowPass {
 public:
  RowPass(const KernelTable& table, const Rows& logits, double temperature, Result result, const Target& out)
      : table_(table), kernels_(row_kernels<T>(table)), reader_(table, logits), logits_(logits), temperature_(temperature),
        inverse_(inverse_temperature_of<T>(temperature)), result_(result), out_(out), direct_(out.template contiguous_rows<T>()),
        n_blocks_(ceil_div(logits.width, kBlockIds)),
        streaming_(result != Result::log_sum_exp && direct_ &&
                   double(logits.n_rows) * double(logits.width) * sizeof(T) >= kStreamingBytes) {}

  int64_t n_blocks() const { return n_blocks_; }
  bool streaming() const { return streaming_; }
  void fence() const {
    if (streaming_) table_.stream_fence();
  }

  void reserve(RowState<T>& s, int64_t row) const {
    s.maxima.reserve(n_blocks_);
    s.rests.reserve(n_blocks_);
    if (result_ == Result::softmax) s.factors.reserve(n_blocks_);
    if (result_ == Result::softmax || (result_ == Result::log_softmax && !reader_.in_place(row))) s.values.reserve(logits_.width);
    if (result_ != Result::log_sum_exp && !direct_) s.result.reserve(logits_.width);
  }

  // The sums of blocks [first, last) of a row.
  void sum_blocks(int64_t row, int64_t first, int64_t last, RowState<T>& s, Conversion<T>& mine) const {
    const auto sum = [&](int64_t block, int64_t end, const T* z) {
      const int64_t id = block * kBlockIds;
      kernels_.block_sums(z, std::min(end * kBlockIds, logits_.width) - id, inverse_,
                          result_ == Result::softmax ? s.values.get() + id : nullptr, s.blocks_from(block));
    };
    if (reader_.in_place(row)) return sum(first, last, reader_.row(row) + first * kBlockIds);
    for (int64_t b = first; b < last; ++b) {  // a converted block is summed while it is in L1
      const int64_t id = b * kBlockIds;
      T* to = result_ == Result::log_softmax ? s.values.get() + id : mine.block.reserve(kBlockIds);
      sum(b, b + 1, reader_.read(row, id, std::min(kBlockIds, logits_.width - id), to, mine.temporary));
    }
  }

  void merge(RowState<T>& s) const {
    s.sum = kernels_.merge_sums(s.blocks_from(0), n_blocks_, inverse_, result_ == Result::softmax ? s.factors.get() : nullptr);
  }

  void write_sum(int64_t row, const RowState<T>& s) const {
    const T value = log_sum_exp_of(s.sum, temperature_);
    out_.put(row, 0, &value, 1);
  }

  // Elements [first, last) of the result.
  void write(int64_t row, int64_t first, int64_t last, RowState<T>& s) const {
    const RowPart<T> to{direct_ ? reinterpret_cast<T*>(out_.row(row)) : s.result.get(), logits_.width, first, last, streaming_};
    if (!is_finite_sum(s.sum)) std::fill(to.data + first, to.data + last, std::numeric_limits<T>::quiet_NaN());
    else if (result_ == Result::softmax)
      kernels_.scale_exps(s.values.get(), s.factors.get(), static_cast<T>(1 / (1 + double(s.sum.rest))), to);
    else
      kernels_.shift_logits(reader_.in_place(row) ? reader_.row(row) : s.values.get(), s.sum.max, inverse_, log_sum_of(s.sum), to);
    if (!direct_) out_.put(row, first, to.data + first, last - first);
  }

  // Where the part of a row that ends with block `block` ends: there, or where the cache line of the result begins.
  int64_t element_at(int64_t row, int64_t block) const {
    if (block >= n_blocks_) return logits_.width;
    const int64_t id = block * kBlockIds;
    if (!streaming_ || block == 0) return id;
    const auto past = reinterpret_cast<uintptr_t>(out_.row(row)) / sizeof(T) + static_cast<uintptr_t>(id);
    return id - static_cast<int64_t>(past % (kCacheLine / sizeof(T)));
  }

  void whole_row(int64_t row, RowState<T>& s, Conversion<T>& mine) const {
    reserve(s, row);
    sum_blocks(row, 0, n_blocks_, s, mine);
    merge(s);
    if (result_ == Result::log_sum_exp) write_sum(row, s);
    else write(row, 0, logits_.width, s);
  }

  // Rows [first, last): a turn of sums of one row, a turn of results of the row before.
  void rows_in_turns(int64_t first, int64_t last, RowState<T>* now, RowState<T>* before, Conversion<T>& mine) const {
    for (int64_t row = first; row < last; ++row) {
      reserve(*now, row);
      int64_t written = 0;
      for (int64_t b = 0; b < n_blocks_; b += kBlocksPerTurn) {
        const int64_t end = std::min(n_blocks_, b + kBlocksPerTurn);
        sum_blocks(row, b, end, *now, mine);
        if (row == first) continue;
        write(row - 1, written, element_at(row - 1, end), *before);
        written = element_at(row - 1, end);
      }
      merge(*now);
      std::swap(now, before);
    }
    write(last - 1, 0, logits_.width, *before);
  }

 private:
  const KernelTable& table_;
  const RowKernels<T>& kernels_;
  const Reader<T> reader_;
  const Rows& logits_;
  double temperature_;
  T inverse_;
  Result result_;
  const Target& out_;
  bool direct_;
  int64_t n_blocks_;
  bool streaming_;
};

template <class T>
void share_blocks(const RowPass<T>& pass, const Rows& logits, Result result, int threads) {
  RowState<T> s;
  std::vector<Conversion<T>> conversions(static_cast<size_t>(threads));
  const int64_t n_tasks = ceil_div(pass.n_blocks(), kBlocksPerTask);
  for (int64_t row = 0; row < logits.n_rows; ++row) {
    pass.reserve(s, row);
    run_tasks(threads, n_tasks, [&](int worker, int64_t task) {
      pass.sum_blocks(row, task * kBlocksPerTask, std::min(pass.n_blocks(), (task + 1) * kBlocksPerTask), s,
                      conversions[static_cast<size_t>(worker)]);
    });
    pass.merge(s);
    if (result == Result::log_sum_exp) {
      pass.write_sum(row, s);
      continue;
    }
    run_tasks(threads, n_tasks, [&](int, int64_t task) {
      pass.write(row, pass.element_at(row, task * kBlocksPerTask), pass.element_at(row, (task + 1) * kBlocksPerTask), s);
      pass.fence();
    });
  }
}

template <class T>
void row_family(const Rows& logits, double temperature, Result result, const Target& out, int threads) {
  const RowPass<T> pass(table(), logits, temperature, result, out);
  if (logits.n_rows < threads && pass.n_blocks() >= 2 * kBlocksPerTask) return share_blocks(pass, logits, result, threads);
  if (double(logits.n_rows) * double(logits.width) < kSerialElements) threads = 1;
  struct Scratch {
    RowState<T> rows[2];
    Conversion<T> conversion;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  // At least four tasks a thread, so that a late thread costs little.
  const int64_t rows_per_task = pass.streaming() ? std::max<int64_t>(1, std::min(kRowsInTurns, logits.n_rows / (4 * threads))) : 1;
  run_tasks(threads, ceil_div(logits.n_rows, rows_per_task), [&](int worker, int64_t task) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    const int64_t first = task * rows_per_task, last = std::min(logits.n_rows, first + rows_per_task);
    if (last - first == 1) pass.whole_row(first, mine.rows[0], mine.conversion);
    else pass.rows_in_turns(first, last, &mine.rows[0], &mine.rows[1], mine.conversion);
    pass.fence();
  });
}

// float32 rows under a temperature that float32 does not hold: each is widened, treated in float64, and rounded once.
void rows_in_double(const Rows& logits, double temperature, Result result, const Target& out, int threads) {
  const KernelTable& kernels = table();
  const Reader<float> reader(kernels, logits);
  struct Scratch {
    Buffer<float> narrow;
    Buffer<double> wide;
    Buffer<char> temporary;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  run_tasks(threads, logits.n_rows, [&](int worker, int64_t row) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    const int64_t n = logits.width, n_out = out.width;
    float* narrow = mine.narrow.reserve(std::max<int64_t>(1, n));
    double* wide = mine.wide.reserve(std::max<int64_t>(1, n));
    const float* z = reader.read(row, 0, n, narrow, mine.temporary);
    std::copy(z, z + n, wide);
    Rows one;
    one.data = reinterpret_cast<const char*>(wide);
    one.dtype = DType::float64;
    one.n_rows = 1;
    one.width = n;
    one.element_stride = sizeof(double);
    Target in_place;  // the result takes the row's place
    in_place.data = reinterpret_cast<char*>(wide);
    in_place.n_rows = 1;
    in_place.width = n_out;
    in_place.element_stride = sizeof(double);
    row_family<double>(one, temperature, result, in_place, 1);
    std::copy(wide, wide + n_out, narrow);
    out.put(row, 0, narrow, n_out);
  });
}

void dispatch(const Rows& logits, double temperature, Result result, const Target& out, int threads) {
  if (logits.dtype != DType::float64 && beyond_float(temperature)) rows_in_double(logits, temperature, result, out, threads);
  else if (logits.dtype == DType::float64) row_family<double>(logits, temperature, result, out, threads);
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
