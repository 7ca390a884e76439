// The fused loss. Alone it is one fold. With gradients the rows go in chunks: a fold that keeps the chunk's logits in a bounded
// buffer, a map that turns them into p - y in place, and the two products of the backward pass.
#include <algorithm>
#include <vector>

#include "consumers/cross_entropy.hpp"
#include "core/active.hpp"
#include "core/contraction.hpp"
#include "dispatch/tables.hpp"
#include "ops/gradient_rows.hpp"
#include "ops/loss_setup.hpp"

namespace lmhead {
namespace {

// Rows of a chunk: with fewer, the gradient of the weight is read and written too often beside its multiplications.
constexpr int64_t kChunkRows = 256;
// Where that many logits are few, a chunk takes more: up to so many bytes.
constexpr int64_t kChunkBytes = 4 * 1024 * 1024;
// Multiplications of one of the three products below which a step has no time for the half dozen parallel regions it would take.
constexpr double kSerialStep = 1 << 20;
// Logits below which one thread has differentiated them before a second has woken.
constexpr double kSerialElements = 1 << 14;
// Ids whose rows of a gradient are brought together where the caller's array cannot take them as they come.
constexpr int64_t kIdsTogether = 48;

int64_t rows_per_chunk(int64_t asked, int64_t n, int64_t n_ids, int64_t width, ptrdiff_t item) {
  if (asked == 0) {
    // A row of a chunk has its logits, its share of a block of ids, and its hidden state in panels.
    const int64_t most = std::max(kChunkRows, kChunkBytes / (std::max({n_ids, width, kBlockIds}) * item));
    const int64_t chunks = std::max<int64_t>(1, (n + most / 2) / most);
    asked = ceil_div(n, chunks);
  }
  return round_up(std::max<int64_t>(1, std::min(asked, n)), 2);  // bfloat16 rows go in pairs
}

template <class T>
class LinearLoss {
 public:
  LinearLoss(const Rows& hidden, const Rows& weight, const Counted& counted, const LossOptions& options, const LinearGradients* gradients,
             bool entropy, bool argmax, int threads)
      : kernels_(table()), hidden_(hidden), weight_(weight), counted_(counted), gradients_(gradients), threads_(threads),
        n_ids_(weight.n_rows), summary_(counted, options), setup_(options, n_ids_, entropy, argmax),
        blocks_(kernels_, setup_.spec(), n_ids_) {
    losses_.resize(counted.rows.size());
    if (double(counted.rows.size()) * double(n_ids_) * double(hidden.width) < kSerialStep) threads_ = 1;
  }

  const std::vector<RowLoss>& losses() const { return losses_; }
  const LossSummary& summary() const { return summary_; }
  double skipped_mass() const { return skipped_mass_; }

  void run(int64_t chunk_rows) {
    const auto n = static_cast<int64_t>(counted_.rows.size());
    if (!gradients_) return forward(0, n, {}, false);
    if (differentiated().empty()) {  // as if no row counted, so that not even NaN gets anywhere
      forward(0, n, {}, false);
      start_gradients();
      return finish_gradients();
    }
    const int64_t step = rows_per_chunk(chunk_rows, n, n_ids_, hidden_.width, sizeof(T));
    logits_.reserve(std::min(step, n) * logits_stride());  // what may fail, before anything is written
    start_gradients();
    for (int64_t first = 0; first < n; first += step) chunk(first, std::min(step, n - first));
    finish_gradients();
  }

 private:
  bool wants_hidden() const { return gradients_->hidden.wanted; }
  bool wants_weight() const { return gradients_->weight.wanted; }
  bool wants_bias() const { return gradients_->bias.wanted; }
  const std::vector<int64_t>& differentiated() const { return summary_.differentiated(); }

  void forward(int64_t first, int64_t n, const Place<T>& logits, bool raw) {
    if (n == 0) return;
    const Rows rows = chosen_rows(hidden_, counted_.rows, first, n);
    const Projection projection(kernels_, rows, weight_);
    CrossEntropy<T> consumer(kernels_, blocks_, setup_.totals(), counted_.ids.data() + first, losses_.data() + first, logits, raw, threads_);
    fold<T>(kernels_, projection, raw ? Adjust<T>{} : setup_.spec().adjust, consumer, threads_);
  }

  // Rows that do not count become 0 (or stay), sums that outlive a chunk begin.
  void start_gradients() {
    kind_ = sizeof(T) == 8 ? ContractionKind::f64
            : hidden_.dtype == DType::bfloat16 && weight_.dtype == DType::bfloat16 && !filtered() ? ContractionKind::bf16
                                                                                                   : ContractionKind::f32;
    if (wants_hidden() && !gradients_->accumulate) GradientRows<T>(kernels_, gradients_->hidden).clear_except(differentiated(), threads_);
    if (wants_weight() && !GradientRows<T>(kernels_, gradients_->weight).full_precision()) weight_sums_.reserve(n_ids_ * hidden_.width);
    if (wants_weight() && (gradients_->accumulate || differentiated().empty())) begin_weight();
    if (wants_bias()) {
      T* sums = bias_sums_.reserve(n_ids_);
      std::fill(sums, sums + n_ids_, T(0));
      Buffer<char> temporary;
      if (gradients_->accumulate) GradientRows<T>(kernels_, gradients_->bias).load(0, 0, n_ids_, sums, temporary);
    }
  }

  // The weight's gradient before the first chunk, where that does not begin from 0 by itself.
  void begin_weight() {
    const GradientRows<T> rows(kernels_, gradients_->weight);
    if (!gradients_->accumulate) return rows.clear_except({}, threads_);
    if (rows.full_precision()) return;
    rows.each(threads_, [&](int64_t id, Buffer<char>& temporary) {
      rows.load(id, 0, rows.width(), weight_sums_.get() + id * rows.width(), temporary);
    });
  }

  void finish_gradients() {
    Buffer<char> temporary;
    if (wants_bias()) GradientRows<T>(kernels_, gradients_->bias).store(0, 0, n_ids_, bias_sums_.get(), temporary);
    const GradientRows<T> rows(kernels_, gradients_->weight);
    if (!wants_weight() || rows.full_precision() || differentiated().empty()) return;
    rows.each(threads_, [&](int64_t id, Buffer<char>& mine) { rows.store(id, 0, rows.width(), weight_sums_.get() + id * rows.width(), mine); });
  }

  int64_t logits_stride() const { return round_up(n_ids_, static_cast<int64_t>(kCacheLine / sizeof(T))); }

  void chunk(int64_t first, int64_t n) {
    const int64_t stride = logits_stride();
    T* logits = logits_.reserve(n * stride);
    forward(first, n, {logits, stride}, setup_.spec().adjust.softcap != 0);
    differentiate(first, n, logits, stride);
    if (wants_weight() || wants_bias()) sum_over_tokens(first, n, logits, stride);
    if (wants_hidden()) sum_over_ids(first, n, logits, stride);
  }

  // Logits become p - y, in place; rows of bfloat16 stand at the beginning of theirs.
  void differentiate(int64_t first, int64_t n, T* logits, int64_t stride) {
    const LossGradient<T> gradient(kernels_, blocks_, gradients_->filter_eps);
    std::vector<double> skipped(static_cast<size_t>(n));
    run_tasks(double(n) * double(n_ids_) < kSerialElements ? 1 : threads_, n, [&](int, int64_t r) {
      const int64_t i = first + r;
      T* row = logits + r * stride;
      const RowLoss& loss = losses_[static_cast<size_t>(i)];
      skipped[static_cast<size_t>(r)] = gradient.row(row, loss, setup_.desired(counted_.ids[static_cast<size_t>(i)]), summary_.coefficients(i, loss), row);
      if (kind_ == ContractionKind::bf16) kernels_.narrow_bf16(reinterpret_cast<const float*>(row), n_ids_, reinterpret_cast<uint16_t*>(row));
    });
    for (double mass : skipped) skipped_mass_ = std::max(skipped_mass_, mass);
  }

  // Most coefficients are 0.
  bool filtered() const { return gradients_->filter_eps > 0; }

  // One block of coefficients as OverTokens wants it.
  void gather_block(const T* logits, int64_t stride, int64_t n, int64_t id, int64_t n_block, T* block) const {
    if (kind_ != ContractionKind::bf16) {
      for (int64_t r = 0; r < n; ++r) std::copy(logits + r * stride + id, logits + r * stride + id + n_block, block + r * kBlockIds);
      return;
    }
    const auto half_row = [&](int64_t r) { return reinterpret_cast<const char*>(logits + r * stride) + 2 * id; };
    auto* pairs = reinterpret_cast<uint32_t*>(block);
    for (int64_t r = 0; r < n; r += 2) pair_elements(half_row(r), r + 1 < n ? half_row(r + 1) : nullptr, n_block, pairs + r / 2 * kBlockIds);
  }

  void add_to_bias(const T* logits, int64_t stride, int64_t n, int64_t id, int64_t n_block) const {
    T* sums = bias_sums_.get() + id;
    T widened[kBlockIds];
    for (int64_t r = 0; r < n; ++r) {
      const T* g = logits + r * stride + id;
      if (kind_ == ContractionKind::bf16) {
        kernels_.widen_bf16(reinterpret_cast<const uint16_t*>(logits + r * stride) + id, n_block, reinterpret_cast<float*>(widened));
        g = widened;
      }
      for (int64_t j = 0; j < n_block; ++j) sums[j] += g[j];
    }
  }

  void sum_over_tokens(int64_t first, int64_t n, const T* logits, int64_t stride) {
    const Rows hidden = chosen_rows(hidden_, counted_.rows, first, n);
    const GradientRows<T> rows(kernels_, gradients_->weight);
    const int64_t width = hidden_.width;
    const int threads = double(n) * double(n_ids_) * double(width) < kSerialWork ? 1 : threads_;
    const bool from_zero = first == 0 && !gradients_->accumulate;
    OverTokens<T> over_tokens(kernels_, kind_, width);
    ReturnedBuffer<T> widened;
    std::vector<const T*> hidden_rows;
    if (wants_weight() && !filtered()) over_tokens.pack(hidden, 0, n, threads_);
    if (wants_weight() && filtered()) {
      Buffer<char> temporary;
      hidden_rows.resize(static_cast<size_t>(n));
      Reader<T>(kernels_, hidden).read_rows(0, n, widened.reserve(n * width), temporary, hidden_rows.data());
    }
    struct Scratch {
      ReturnedBuffer<T> block, rows;
      Buffer<char> temporary;
      ActiveTokens<T> active;
    };
    std::vector<Scratch> scratch(static_cast<size_t>(threads));
    // Whole blocks, or where these are few, whole groups of register tiles.
    const int64_t ids_per_task = std::min(kBlockIds, round_up(ceil_div(n_ids_, 4 * threads), kIdsTogether));
    run_tasks(threads, ceil_div(n_ids_, ids_per_task), [&](int worker, int64_t task) {
      Scratch& mine = scratch[static_cast<size_t>(worker)];
      const int64_t id = task * ids_per_task, n_block = std::min(ids_per_task, n_ids_ - id);
      if (wants_bias()) add_to_bias(logits, stride, n, id, n_block);
      if (!wants_weight() || width == 0) return;
      T* block = mine.block.reserve(round_up(n, 2) * kBlockIds);
      gather_block(logits, stride, n, id, n_block, block);
      if (filtered()) mine.active.find(kernels_, block, n, n_block);
      // Ids [at, at + count) of the block.
      const auto add = [&](int64_t at, int64_t count, T* to, ptrdiff_t to_stride) {
        const ptrdiff_t item = kind_ == ContractionKind::bf16 ? 4 : sizeof(T);
        if (!filtered()) return over_tokens.run(reinterpret_cast<const char*>(block) + at * item, count, to, to_stride, from_zero);
        for (int64_t j = 0; j < count; ++j) mine.active.add(kernels_, at + j, hidden_rows.data(), width, to + j * to_stride, from_zero);
      };
      if (!rows.full_precision()) return add(0, n_block, weight_sums_.get() + id * width, width);
      if (rows.plain()) return add(0, n_block, rows.row(id), rows.row_stride());
      // An array of other strides: some rows at a time are brought together and put back.
      for (int64_t at = 0; at < n_block; at += kIdsTogether) {
        const int64_t count = std::min(kIdsTogether, n_block - at);
        T* together = mine.rows.reserve(kIdsTogether * width);
        if (!from_zero)
          for (int64_t j = 0; j < count; ++j) rows.load(id + at + j, 0, width, together + j * width, mine.temporary);
        add(at, count, together, width);
        for (int64_t j = 0; j < count; ++j) rows.store(id + at + j, 0, width, together + j * width, mine.temporary);
      }
    });
  }

  void sum_over_ids(int64_t first, int64_t n, const T* logits, int64_t stride) {
    const GradientRows<T> rows(kernels_, gradients_->hidden);
    const int64_t width = hidden_.width;
    if (width == 0) return;
    std::vector<T*> out(static_cast<size_t>(n));
    ReturnedBuffer<T> sums;
    Buffer<char> temporary;
    if (!rows.direct()) sums.reserve(n * width);
    const auto row_of = [&](int64_t r) { return counted_.rows[static_cast<size_t>(first + r)]; };
    for (int64_t r = 0; r < n; ++r) {
      T* to = out[static_cast<size_t>(r)] = rows.direct() ? rows.row(row_of(r)) : sums.get() + r * width;
      if (!gradients_->accumulate) std::fill(to, to + width, T(0));
      else if (!rows.direct()) rows.load(row_of(r), 0, width, to, temporary);
    }
    if (filtered()) sum_active_ids(kernels_, logits, stride, n, weight_, out.data(), threads_);
    else OverIds<T>(kernels_, weight_, kind_).run({reinterpret_cast<const char*>(logits), stride * static_cast<ptrdiff_t>(sizeof(T))}, n, out.data(), threads_);
    if (rows.direct()) return;
    for (int64_t r = 0; r < n; ++r) rows.store(row_of(r), 0, width, out[static_cast<size_t>(r)], temporary);
  }

  const KernelTable& kernels_;
  const Rows& hidden_;
  const Rows& weight_;
  const Counted& counted_;
  const LinearGradients* gradients_;
  int threads_;
  int64_t n_ids_;
  LossSummary summary_;
  LossSetup<T> setup_;
  LossBlocks<T> blocks_;
  double skipped_mass_ = 0;
  std::vector<RowLoss> losses_;
  ContractionKind kind_ = ContractionKind::f32;
  Buffer<T> logits_, weight_sums_, bias_sums_;
};

template <class T>
LossScalars linear_cross_entropy_as(const Rows& hidden, const Rows& weight, const Counted& counted, const LossOptions& options,
                                    int64_t chunk_rows, const LossTarget& out, const LinearGradients* gradients, int threads) {
  LinearLoss<T> loss(hidden, weight, counted, options, gradients, out.entropy, out.argmax, threads);
  loss.run(chunk_rows);
  LossScalars scalars = loss.summary().template write<T>(loss.losses(), counted.ids, out);
  scalars.skipped_mass = loss.skipped_mass();
  return scalars;
}

}  // namespace

LossScalars linear_cross_entropy(const Rows& hidden, const Rows& weight, const Counted& counted, const LossOptions& options,
                                 int64_t chunk_rows, const LossTarget& out, const LinearGradients* gradients, int threads) {
  if (weight.dtype == DType::float64) return linear_cross_entropy_as<double>(hidden, weight, counted, options, chunk_rows, out, gradients, threads);
  return linear_cross_entropy_as<float>(hidden, weight, counted, options, chunk_rows, out, gradients, threads);
}

}  // namespace lmhead
