// Cross entropy of given logits: each row is read once for its loss and, while it is in cache, once more for its gradient.
#include <algorithm>
#include <vector>

#include "core/parallel.hpp"
#include "core/read.hpp"
#include "dispatch/tables.hpp"
#include "ops/gradient_rows.hpp"
#include "ops/loss_setup.hpp"

namespace lmhead {
namespace {

// Elements below which one thread is done before a second has woken.
constexpr double kSerialElements = 1 << 15;

template <class T>
class RowLosses {
 public:
  RowLosses(const Rows& logits, const Counted& counted, const LossOptions& options, const GradientTarget* gradient, bool accumulate,
            bool entropy, bool argmax)
      : kernels_(table()), reader_(kernels_, logits), logits_(logits), counted_(counted), summary_(counted, options),
        gradient_(gradient), accumulate_(accumulate), setup_(options, logits.width, entropy, argmax), spec_(setup_.spec()),
        blocks_(kernels_, spec_, logits.width), differentiate_(kernels_, blocks_, 0) {
    losses_.resize(counted.rows.size());
    best_ = counted.ids;
    best_.resize(counted.rows.size(), -1);
  }

  void run(int threads) {
    const auto n = static_cast<int64_t>(counted_.rows.size());
    if (double(n) * double(logits_.width) < kSerialElements) threads = 1;
    std::vector<Scratch> scratch(static_cast<size_t>(threads));
    const std::vector<int64_t>& differentiated = summary_.differentiated();
    run_tasks(threads, n, [&](int worker, int64_t i) {
      Scratch& mine = scratch[static_cast<size_t>(worker)];
      one_row(i, mine);
      if (gradient_ && !differentiated.empty()) one_gradient(i, mine);
    });
    if (gradient_ && !accumulate_) GradientRows<T>(kernels_, *gradient_).clear_except(differentiated, threads);
  }

  LossScalars write(const LossTarget& out) const { return summary_.template write<T>(losses_, best_, out); }

 private:
  struct Scratch {
    PartialRows<T> partials;
    Buffer<T> block, factors, gradient, weighted, kept;
    Buffer<char> temporary;
    BlockTotals totals;
    Desired<T> desired;
  };
  bool soft() const { return counted_.probabilities != nullptr; }

  // Adjusted logits of a stretch; those that are adjusted or converted are copied.
  const T* adjusted(int64_t row, int64_t first, int64_t n, Scratch& mine) const {
    if (spec_.adjust.none()) return reader_.read(row, first, n, mine.block.reserve(kBlockIds), mine.temporary);
    T* copy = mine.block.reserve(kBlockIds);
    copy_row(kernels_, logits_, row, first, n, RowLayout::wide, copy, mine.temporary);
    spec_.adjust(kernels_, {copy, n, row, 1, first, n});
    return copy;
  }

  void one_row(int64_t i, Scratch& mine) {
    const int64_t row = counted_.rows[static_cast<size_t>(i)], width = logits_.width;
    RowLoss& loss = losses_[static_cast<size_t>(i)];
    const bool gaps = soft() || spec_.smooth();
    if (soft()) read_probabilities(i, mine);
    const T* weights = soft() ? mine.weighted.get() : spec_.class_weight_t;
    mine.partials.reserve(1, std::max<int64_t>(1, blocks_.n_blocks()), spec_, gaps);
    const BlockPartials<T> partials = mine.partials.row(0);
    const int64_t target = soft() ? -1 : counted_.ids[static_cast<size_t>(i)];
    const bool whole = spec_.adjust.none() && reader_.in_place(row);
    const int64_t step = whole ? std::max<int64_t>(1, width) : kBlockIds;
    for (int64_t first = 0; first < width; first += step) {
      const int64_t n = std::min(step, width - first);
      const T* z = whole ? reader_.row(row) : adjusted(row, first, n, mine);
      blocks_.add(z, n, first, weights ? weights + first : nullptr, partials);
      if (target >= first && target < first + n) loss.target_logit = double(z[target - first]);
    }
    T* factors = mine.factors.reserve(std::max<int64_t>(1, blocks_.n_blocks()));
    const double all_classes = blocks_.merge(partials, soft() ? mine.totals : setup_.totals(), factors, loss);
    if (!soft()) return blocks_.finish(target, all_classes, loss);
    loss.cross_entropy = loss.defined() ? all_classes : std::numeric_limits<double>::quiet_NaN();
    if (!loss.defined()) loss.entropy = loss.cross_entropy;
  }

  // c_v y_v of a row with soft targets, in units of the spec, and its sums by block.
  void read_probabilities(int64_t i, Scratch& mine) {
    const Rows& probabilities = *counted_.probabilities;
    const int64_t row = counted_.probability_rows[static_cast<size_t>(i)], width = logits_.width;
    T* weighted = mine.weighted.reserve(std::max<int64_t>(1, width));
    copy_row(kernels_, probabilities, row, 0, width, RowLayout::wide, weighted, mine.temporary);
    int64_t best = width > 0 ? 0 : -1;
    for (int64_t id = 1; id < width; ++id)
      if (weighted[id] > weighted[best] || (weighted[id] != weighted[id] && weighted[best] == weighted[best])) best = id;
    best_[static_cast<size_t>(i)] = best;
    mine.totals.clear();
    mine.desired.total = 0;
    const double smoothing = spec_.smoothing, unit = spec_.weight_unit;
    for (int64_t first = 0; first < width; first += kBlockIds) {
      double sum = 0;
      for (int64_t id = first; id < std::min(width, first + kBlockIds); ++id) {
        const double y = (1 - smoothing) * double(weighted[id]) + (smoothing > 0 ? smoothing / double(width) : 0);
        weighted[id] = static_cast<T>(spec_.weight_of(id) / unit * y);
        sum += double(weighted[id]) * unit;
      }
      mine.totals.push_back(sum);
      mine.desired.total += sum;
    }
  }

  // Soft targets: the formula that keeps 1 - p is only needed where p is close to 1.
  Desired<T> desired_of(int64_t i, Scratch& mine, RowLoss& loss) const {
    if (!soft()) return setup_.desired(counted_.ids[static_cast<size_t>(i)]);
    Desired<T> d = mine.desired;
    d.elsewhere = 1;
    d.weighted = mine.weighted.get();
    d.special = special_of(i, mine, loss);
    d.special_weighted = d.special >= 0 ? double(d.weighted[d.special]) * spec_.weight_unit : 0;
    return d;
  }

  // Where the row's maximum first stands.
  int64_t special_of(int64_t i, Scratch& mine, RowLoss& loss) const {
    const int64_t row = counted_.rows[static_cast<size_t>(i)], width = logits_.width;
    loss.target_logit = loss.max;
    if (loss.argmax >= 0) return loss.argmax;
    for (int64_t first = 0; first < width && loss.defined(); first += kBlockIds) {
      const int64_t n = std::min(kBlockIds, width - first);
      const int64_t at = row_kernels<T>(kernels_).find_first(adjusted(row, first, n, mine), n, static_cast<T>(loss.max));
      if (at < n) return first + at;
    }
    return -1;
  }

  void one_gradient(int64_t i, Scratch& mine) {
    const int64_t row = counted_.rows[static_cast<size_t>(i)], width = logits_.width;
    RowLoss loss = losses_[static_cast<size_t>(i)];
    const GradientRows<T> rows(kernels_, *gradient_);
    const bool capped = spec_.adjust.softcap != 0;
    const Desired<T> desired = desired_of(i, mine, loss);
    const RowCoefficients coefficients = summary_.coefficients(i, loss);
    const bool in_place = reader_.in_place(row) && (capped || spec_.adjust.none());
    T* to = rows.direct() && !accumulate_ ? rows.row(row) : mine.gradient.reserve(std::max<int64_t>(1, width));
    const T* z = reader_.row(row);
    if (!in_place) {
      T* kept = mine.kept.reserve(std::max<int64_t>(1, width));
      copy_row(kernels_, logits_, row, 0, width, RowLayout::wide, kept, mine.temporary);
      if (!capped) spec_.adjust(kernels_, {kept, width, row, 1, 0, width});
      z = kept;
    }
    differentiate_.row(z, loss, desired, coefficients, to);
    if (rows.direct() && !accumulate_) return;
    if (accumulate_) {
      T* before = mine.weighted.reserve(std::max<int64_t>(1, width));
      rows.load(row, 0, width, before, mine.temporary);
      for (int64_t id = 0; id < width; ++id) to[id] = before[id] + to[id];
    }
    rows.store(row, 0, width, to, mine.temporary);
  }

  const KernelTable& kernels_;
  const Reader<T> reader_;
  const Rows& logits_;
  const Counted& counted_;
  LossSummary summary_;
  const GradientTarget* gradient_;
  bool accumulate_;
  const LossSetup<T> setup_;
  const LossSpec<T>& spec_;
  LossBlocks<T> blocks_;
  LossGradient<T> differentiate_;
  std::vector<RowLoss> losses_;
  std::vector<int64_t> best_;
};

template <class T>
LossScalars cross_entropy_as(const Rows& logits, const Counted& counted, const LossOptions& options, const LossTarget& out,
                             const GradientTarget* gradient, bool accumulate, int threads) {
  RowLosses<T> losses(logits, counted, options, gradient, accumulate, out.entropy, out.argmax);
  losses.run(threads);
  return losses.write(out);
}

}  // namespace

LossScalars cross_entropy(const Rows& logits, const Counted& counted, const LossOptions& options, const LossTarget& out,
                          const GradientTarget* logits_gradient, bool accumulate, int threads) {
  if (logits.dtype == DType::float64) return cross_entropy_as<double>(logits, counted, options, out, logits_gradient, accumulate, threads);
  return cross_entropy_as<float>(logits, counted, options, out, logits_gradient, accumulate, threads);
}

}  // namespace lmhead
