// The options of a loss as rows of T need them: class weights, their sums, and what p should be for a target.
// It knows options; it refuses to know rows.
#pragma once

#include "core/float_range.hpp"
#include "ops/loss_gradient.hpp"

namespace lmhead {

template <class T>
class LossSetup {
 public:
  LossSetup(const LossOptions& options, int64_t n_ids, bool entropy, bool argmax) : n_ids_(n_ids) {
    spec_.adjust = {static_cast<const T*>(options.head.bias), options.head.softcap, options.head.scale};
    spec_.temperature = options.temperature;
    spec_.smoothing = options.label_smoothing;
    spec_.class_weight = options.class_weight;
    spec_.entropy = entropy;
    spec_.argmax = argmax;
    if (options.class_weight) {
      T* weights = class_weight_.reserve(std::max<int64_t>(1, n_ids));
      spec_.weight_unit = unit_of(options.class_weight, n_ids);
      for (int64_t id = 0; id < n_ids; ++id) weights[id] = static_cast<T>(options.class_weight[id] / spec_.weight_unit);
      spec_.class_weight_t = weights;
    }
    totals_ = class_totals(spec_, n_ids);
    for (double total : totals_) class_total_ += total;
  }
  LossSetup(const LossSetup&) = delete;

  const LossSpec<T>& spec() const { return spec_; }
  const BlockTotals& totals() const { return totals_; }

  Desired<T> desired(int64_t target) const {
    Desired<T> d;
    d.special = target;
    d.elsewhere = spec_.smoothing / double(n_ids_);
    d.special_y = 1 - spec_.smoothing + d.elsewhere;
    d.special_weighted = spec_.weight_of(target) * d.special_y;
    d.total = (1 - spec_.smoothing) * spec_.weight_of(target) + d.elsewhere * class_total_;
    if (n_ids_ == 1) d.total = d.special_weighted;  // and no rounding between them
    d.weighted = spec_.class_weight_t;
    return d;
  }

 private:
  // 1, unless float32 does not hold the greatest of the weights well: a mean divides by them, so the answer may still be ordinary.
  static double unit_of(const double* weights, int64_t n) {
    double most = 0;
    for (int64_t id = 0; id < n; ++id)
      if (std::isfinite(weights[id])) most = std::max(most, std::fabs(weights[id]));
    return sizeof(T) == 4 && beyond_float(most) ? std::ldexp(1.0, std::ilogb(most)) : 1;
  }

  int64_t n_ids_;
  LossSpec<T> spec_;
  Buffer<T> class_weight_;
  BlockTotals totals_;
  double class_total_ = 0;
};

}  // namespace lmhead
