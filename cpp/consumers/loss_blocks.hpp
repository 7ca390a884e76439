// Rows from their blocks: each block of ids leaves a few numbers, which are merged to a row's log-sum-exp, entropy, argmax and loss.
// LossBlocks makes and merges them, for the fused and for the row family.
// It knows one row; it refuses to know tiles, weights of tokens, means and gradients.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "consumers/log_sum_exp.hpp"
#include "core/buffer.hpp"
#include "core/tile.hpp"

namespace lmhead {

// What is asked of every row.
template <class T>
struct LossSpec {
  Adjust<T> adjust;
  double temperature = 1;
  double smoothing = 0;
  const double* class_weight = nullptr;  // (V,), or null: 1
  const T* class_weight_t = nullptr;     // the same as T, in units of
  double weight_unit = 1;                // a power of two; so are all weights of classes that kernels are given
  bool entropy = false, argmax = false;  // wanted

  bool smooth() const { return smoothing > 0; }
  double weight_of(int64_t id) const { return class_weight ? class_weight[id] : 1; }
};

// One row's loss before any weight of its token.
struct RowLoss {
  double max = 0, rest = 0;   // of the log-sum-exp
  double target_logit = 0;
  double cross_entropy = 0;
  double log_sum_exp = 0;
  double entropy = 0;
  int64_t argmax = -1;

  bool defined() const { return max - max == 0; }
};

// The partial results of a row, one of each a block; those that nobody needs are null.
template <class T>
struct BlockPartials {
  T *maxima, *rests, *entropies, *gaps;
  int32_t* firsts;

  static int64_t bytes(int64_t n_blocks) { return n_blocks * static_cast<int64_t>(4 * sizeof(T) + sizeof(int32_t)); }
};

template <class T>
class PartialRows {
 public:
  // Of one spec, whatever the sizes.
  void reserve(int64_t n_rows, int64_t n_blocks, const LossSpec<T>& spec, bool with_gaps) {
    n_blocks_ = n_blocks;
    n_ = n_rows * n_blocks;
    sums_.reserve(2 * n_);
    if (spec.entropy) entropies_.reserve(n_);
    if (with_gaps) gaps_.reserve(n_);
    if (spec.argmax) firsts_.reserve(n_);
  }
  BlockPartials<T> row(int64_t r) const {
    const int64_t at = r * n_blocks_;
    const auto from = [at](const auto& buffer) { return buffer.get() ? buffer.get() + at : nullptr; };
    return {sums_.get() + at, sums_.get() + n_ + at, from(entropies_), from(gaps_), from(firsts_)};
  }

 private:
  ReturnedBuffer<T> sums_, entropies_, gaps_;
  ReturnedBuffer<int32_t> firsts_;
  int64_t n_blocks_ = 0, n_ = 0;
};

// Sums of the weights of the classes in each block.
using BlockTotals = std::vector<double>;

template <class T>
class LossBlocks {
 public:
  LossBlocks(const KernelTable& table, const LossSpec<T>& spec, int64_t n_ids)
      : kernels_(row_kernels<T>(table)), spec_(spec), inverse_(inverse_temperature_of<T>(spec.temperature)), n_ids_(n_ids) {}

  const LossSpec<T>& spec() const { return spec_; }
  T inverse_temperature() const { return inverse_; }
  int64_t n_ids() const { return n_ids_; }
  int64_t n_blocks() const { return ceil_div(n_ids_, kBlockIds); }

  // Adjusted logits of ids [first_id, first_id + n), whole blocks but for the last. `weights`: of the classes of this stretch in
  // `gaps`, null for 1.
  void add(const T* z, int64_t n, int64_t first_id, const T* weights, const BlockPartials<T>& row) const {
    const int64_t first_block = first_id / kBlockIds;
    if (!row.entropies) {
      kernels_.block_sums(z, n, inverse_, nullptr, {row.maxima + first_block, row.rests + first_block});
      if (!row.gaps && !row.firsts) return;
    }
    for (int64_t i = 0; i < n; i += kBlockIds) {
      const int64_t b = first_block + i / kBlockIds, count = std::min(kBlockIds, n - i);
      T exps[kBlockIds];
      if (row.entropies) kernels_.block_sums(z + i, count, inverse_, exps, {row.maxima + b, row.rests + b});
      const T max = row.maxima[b];
      const bool finite = max - max == T(0);
      if (row.entropies) row.entropies[b] = finite ? kernels_.weighted_gap(z + i, count, max, inverse_, exps) : T(0);
      if (row.gaps) row.gaps[b] = finite ? kernels_.weighted_gap(z + i, count, max, inverse_, weights ? weights + i : nullptr) : T(0);
      if (row.firsts) row.firsts[b] = static_cast<int32_t>(kernels_.find_first(z + i, count, max));
    }
  }

  // The row's loss without the part of its target; `totals`: the sums of weights that `gaps` has. `factors`: [n_blocks] of scratch.
  // Returns sum over classes of weight * cost where there are gaps.
  double merge(const BlockPartials<T>& row, const BlockTotals& totals, T* factors, RowLoss& loss) const {
    if (n_ids_ == 0) {
      loss.max = loss.log_sum_exp = -std::numeric_limits<double>::infinity();
      return 0;
    }
    const LogSum<T> sum = kernels_.merge_sums({row.maxima, row.rests}, n_blocks(), inverse_, row.entropies ? factors : nullptr);
    loss.max = double(sum.max);
    loss.rest = double(sum.rest);
    if (row.firsts) {
      const int64_t block = kernels_.find_first(row.maxima, n_blocks(), sum.max);
      loss.argmax = block * kBlockIds + row.firsts[block];
    }
    const double log_total = log1p_of(loss.rest);
    loss.log_sum_exp = loss.defined() ? loss.max / spec_.temperature + log_total : loss.max;
    if (!loss.defined()) return 0;
    double spread = 0, gap = 0, total = 0;
    for (int64_t b = 0; b < n_blocks(); ++b) {
      const double below = distance(double(row.maxima[b]), loss);
      if (row.entropies && factors[b] > T(0)) spread += double(factors[b]) * (double(row.entropies[b]) / kGapScale + below * (1 + double(row.rests[b])));
      if (!row.gaps) continue;
      const double weight = totals[static_cast<size_t>(b)];
      total += weight;
      gap += double(row.gaps[b]) / kGapScale * spec_.weight_unit + (weight == 0 || below == 0 ? 0 : below * weight);
    }
    loss.entropy = log_total + spread / (1 + loss.rest);
    return gap + log_total * total;
  }

  // -log p of a logit of the row.
  double cost(double logit, const RowLoss& loss) const { return distance(logit, loss) + log1p_of(loss.rest); }

  // log p of a logit of the row; NaN where the row has no probabilities.
  double log_probability(double logit, const RowLoss& loss) const {
    if (!loss.defined()) return std::numeric_limits<double>::quiet_NaN();
    return log_probability_of(loss.max, logit, spec_.temperature, log1p_of(loss.rest));
  }

  // Adds the target, which is a class, to what `merge` returned.
  void finish(int64_t target, double all_classes, RowLoss& loss) const {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    if (!loss.defined()) {
      loss.cross_entropy = loss.entropy = nan;
      return;
    }
    const double weight = (1 - spec_.smoothing) * spec_.weight_of(target);
    loss.cross_entropy = (weight == 0 ? 0 : weight * cost(loss.target_logit, loss));
    if (spec_.smooth()) loss.cross_entropy += spec_.smoothing / double(n_ids_) * all_classes;
  }

 private:
  double distance(double logit, const RowLoss& loss) const { return distance_below(loss.max, logit, spec_.temperature); }

  const RowKernels<T>& kernels_;
  const LossSpec<T>& spec_;
  T inverse_;
  int64_t n_ids_;
};

// Sums of class weights block by block; empty where nothing is smoothed.
template <class T>
BlockTotals class_totals(const LossSpec<T>& spec, int64_t n_ids) {
  BlockTotals totals;
  if (!spec.smooth()) return totals;
  for (int64_t first = 0; first < n_ids; first += kBlockIds) {
    double sum = 0;
    for (int64_t id = first; id < std::min(n_ids, first + kBlockIds); ++id) sum += spec.weight_of(id);
    totals.push_back(sum);
  }
  return totals;
}

}  // namespace lmhead
