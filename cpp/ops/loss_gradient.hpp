// A row of logits becomes the gradient of its loss, in place or elsewhere.
// dce/df_v = C p_v - c_v y_v with C = sum of c_u y_u; at the target, where p may be close to y, as (C - c y) p - c y (1 - p), with
// 1 - p from the rest. The z-loss adds 2 * scale * logsumexp * p_v. Then / temperature, and back through softcap and scale.
#pragma once

#include <cmath>

#include "consumers/loss_blocks.hpp"
#include "ops/loss_summary.hpp"

namespace lmhead {

// What p should be: y_v = smoothing / V for every class, and 1 - smoothing more for one; or a vector.
template <class T>
struct Desired {
  int64_t special = -1;              // the target, or the class at which p is largest
  double special_y = 0;              // there
  double special_weighted = 0;       // with the class weight
  double total = 0;                  // C
  double elsewhere = 0;              // y of every other class, without its class weight; factor of `weighted`
  const T* weighted = nullptr;       // (V,) class weights, or all of c_v y_v, in units of the spec; null: 1
};

template <class T>
class LossGradient {
 public:
  LossGradient(const KernelTable& table, const LossBlocks<T>& blocks, double filter_eps)
      : table_(table), kernels_(row_kernels<T>(table)), blocks_(blocks), filter_eps_(filter_eps) {}

  // `z`: the row's V logits, adjusted, or raw where there is a softcap; `out` may be `z`. Returns the mass that the filter took.
  double row(const T* z, const RowLoss& loss, const Desired<T>& desired, const RowCoefficients& coefficients, T* out) const {
    const LossSpec<T>& spec = blocks_.spec();
    const int64_t n_ids = blocks_.n_ids();
    if (!loss.defined()) {
      std::fill(out, out + n_ids, std::numeric_limits<T>::quiet_NaN());
      return 0;
    }
    const bool capped = spec.adjust.softcap != 0;
    const double outer = (capped ? 1 : spec.adjust.scale) * std::min(1 / spec.temperature, std::numeric_limits<double>::max());
    GradientRow<T> g{};
    g.max = static_cast<T>(loss.max);
    g.inverse_temperature = blocks_.inverse_temperature();
    const double factor = (coefficients.cross_entropy * desired.total + coefficients.log_sum_exp) / (1 + loss.rest) * outer;
    const double desired_factor = coefficients.cross_entropy * desired.elsewhere * spec.weight_unit * outer;
    const double unit = unit_of(std::max(std::fabs(factor), std::fabs(desired_factor)));
    g.factor = finite(factor / unit);
    g.desired_factor = finite(desired_factor / unit);
    const T* weighted = g.desired_factor != T(0) ? desired.weighted : nullptr;
    const Special special = special_of(loss, desired, coefficients);
    T special_slope = T(1);
    double skipped = 0;
    // Row by row where one call does, block by block where something has to be kept apart.
    const int64_t step = capped || filter_eps_ > 0 ? kBlockIds : std::max<int64_t>(1, n_ids);
    for (int64_t first = 0; first < n_ids; first += step) {
      T adjusted[kBlockIds], slopes[kBlockIds];
      g.n = std::min(step, n_ids - first);
      g.logits = z + first;
      g.out = out + first;
      g.desired = weighted ? weighted + first : nullptr;
      if (step == kBlockIds) {  // `z` may be overwritten
        std::copy(z + first, z + first + g.n, adjusted);
        g.logits = adjusted;
      }
      if (capped) {
        spec.adjust.slopes(table_, z + first, first, g.n, slopes);
        spec.adjust(table_, {adjusted, g.n, 0, 1, first, g.n});
        g.slopes = slopes;
        const int64_t at = desired.special - first;
        if (at >= 0 && at < g.n) special_slope = slopes[at];
      }
      kernels_.gradient_row(g);
      if (filter_eps_ > 0) skipped += filter(g, first, loss, desired);
      for (int64_t i = 0; unit != 1 && i < g.n; ++i) g.out[i] = finite(double(g.out[i]) * unit);
    }
    if (desired.special >= 0) {
      const bool small = filter_eps_ > 0 && special.distance < filter_eps_;
      skipped += small ? special.distance : 0;
      out[desired.special] = small ? T(0) : static_cast<T>(special.slope * outer * double(special_slope));
    }
    return skipped;
  }

 private:
  // A power of two that takes coefficients beyond the range of T down into it, for what a small p makes of them may be in range; else 1.
  static double unit_of(double coefficient) {
    const bool beyond = coefficient > double(std::numeric_limits<T>::max()) && std::isfinite(coefficient);
    return beyond ? std::ldexp(1.0, std::ilogb(coefficient) - std::numeric_limits<T>::max_exponent + 2) : 1;
  }

  // What is beyond the range of T stays a number, so that what underflowed to 0 stays 0 under it, and beside it in the products.
  static T finite(double x) {
    const double most = double(std::numeric_limits<T>::max());
    if (x != x) return static_cast<T>(x);
    return static_cast<T>(std::min(most, std::max(-most, x)));
  }

  // The special class: the gradient by its final logit, and |p - y|.
  struct Special {
    double slope = 0, distance = 0;
  };
  Special special_of(const RowLoss& loss, const Desired<T>& d, const RowCoefficients& c) const {
    if (d.special < 0) return {};
    const T logit = static_cast<T>(loss.target_logit);
    T e;
    kernels_.gradient_row({&logit, 1, static_cast<T>(loss.max), blocks_.inverse_temperature(), T(1), T(0), nullptr, nullptr, &e});
    const double p = double(e) / (1 + loss.rest);
    const double not_p = loss.target_logit == loss.max ? loss.rest / (1 + loss.rest) : 1 - p;
    return {c.cross_entropy * ((d.total - d.special_weighted) * p - d.special_weighted * not_p) + c.log_sum_exp * p,
            std::fabs((1 - d.special_y) * p - d.special_y * not_p)};
  }

  // The block's filter, on both sides of the special class.
  double filter(const GradientRow<T>& g, int64_t first, const RowLoss& loss, const Desired<T>& desired) const {
    const auto part = [&](int64_t from, int64_t to) {
      if (from >= to) return 0.0;
      return double(kernels_.filter_gradient(g.logits + from, to - from, g.max, g.inverse_temperature, static_cast<T>(1 / (1 + loss.rest)),
                                             static_cast<T>(desired.elsewhere), static_cast<T>(filter_eps_), g.out + from));
    };
    const int64_t at = desired.special - first;
    if (at < 0 || at >= g.n) return part(0, g.n);
    return part(0, at) + part(at + 1, g.n);
  }

  const KernelTable& table_;
  const RowKernels<T>& kernels_;
  const LossBlocks<T>& blocks_;
  double filter_eps_;
};

}  // namespace lmhead
