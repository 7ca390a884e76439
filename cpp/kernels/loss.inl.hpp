// What a loss needs of blocks of logits beside their log-sum-exp: weighted distances from the maximum, the gradient, its filter.
// It knows blocks of plain numbers; it refuses to know targets, means and where logits come from.
#pragma once

#include "kernels/exp.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

// Sum of weights[i] * (max - z[i]) * inverse_temperature over a block, in canonical lanes; what has weight 0 adds 0, also at -inf.
// Taken of logits times 2^-10 and scaled back by the caller: a block of 256 differences of the whole range would overflow.
template <class T>
T weighted_gap(const T* z, int64_t n, T max, T inverse_temperature, const T* weights) {
  constexpr int lanes = kLanes<T>, canonical = kCanonical<T>;
  Vector<T> sums[kParts<T>];
  for (int p = 0; p < kParts<T>; ++p) sums[p] = broadcast(T(0));
  for (int64_t i = 0; i < n; i += canonical)
    for (int p = 0; p < kParts<T>; ++p) {
      const int64_t at = i + p * lanes, left = n - at;
      const Vector<T> small = mul(load_first(z + at, left, max), broadcast(T(kGapScale)));
      const Vector<T> gap = mul(sub(broadcast(max * T(kGapScale)), small), broadcast(inverse_temperature));
      if (!weights) {
        sums[p] = add(sums[p], gap);
        continue;
      }
      const Vector<T> w = load_first(weights + at, left, T(0));
      sums[p] = add(sums[p], select(equal(w, broadcast(T(0))), w, mul(w, gap)));
    }
  return reduce_parts<T>(sums);
}

// out[i] = (exp((z[i] - max) / temperature) * factor - desired_factor * desired[i]) * slopes[i]; without `desired` or `slopes`
// they are 1. `out` may be `logits`.
template <class T, bool has_desired, bool has_slopes>
inline void gradient_as(const GradientRow<T>& g) {
  constexpr int lanes = kLanes<T>;
  const bool scaled = g.inverse_temperature != T(1);
  const Vector<T> factor = broadcast(g.factor), shift = broadcast(g.desired_factor);
  for (int64_t i = 0; i < g.n; i += lanes) {
    const int64_t left = g.n - i;
    const Vector<T> z = load_first(g.logits + i, left, g.max);
    const Vector<T> x = scaled ? below_max<T, true>(z, g.max, g.inverse_temperature) : below_max<T, false>(z, g.max, g.inverse_temperature);
    const Vector<T> wanted = has_desired ? mul(shift, load_first(g.desired + i, left, T(0))) : shift;
    Vector<T> d = sub(mul(exp_below_one<T>(x), factor), wanted);
    if (has_slopes) d = mul(d, load_first(g.slopes + i, left, T(0)));
    store_first(g.out + i, left, d);
  }
}

template <class T>
void gradient_row(const GradientRow<T>& g) {
  if (g.desired) g.slopes ? gradient_as<T, true, true>(g) : gradient_as<T, true, false>(g);
  else g.slopes ? gradient_as<T, false, true>(g) : gradient_as<T, false, false>(g);
}

// Entries of g whose |p - y| is below eps become 0; p = exp((z - max) / temperature) * normaliser. Returns the sum of what was
// left out.
template <class T>
T filter_gradient(const T* z, int64_t n, T max, T inverse_temperature, T normaliser, T y, T eps, T* g) {
  constexpr int lanes = kLanes<T>, canonical = kCanonical<T>;
  Vector<T> sums[kParts<T>];
  for (int p = 0; p < kParts<T>; ++p) sums[p] = broadcast(T(0));
  for (int64_t i = 0; i < n; i += canonical)
    for (int p = 0; p < kParts<T>; ++p) {
      const int64_t at = i + p * lanes, left = n - at;
      const Vector<T> e = exp_below_one<T>(below_max<T, true>(load_first(z + at, left, -kInfinity<T>), max, inverse_temperature));
      const Vector<T> distance = abs(sub(mul(e, broadcast(normaliser)), broadcast(y)));
      const auto stays = not_less(distance, broadcast(eps));
      store_first(g + at, left, select_or_zero(stays, load_first(g + at, left, T(0))));
      const Vector<T> out = select(stays, broadcast(T(0)), distance);
      sums[p] = add(sums[p], select_or_zero(first_lanes(left, z), out));
    }
  return reduce_parts<T>(sums);
}

// float32 to bfloat16, nearest even, from the first element on: `out` may begin where `in` does.
inline void narrow_bf16(const float* in, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + kLanes<float> <= n; i += kLanes<float>) store_bf16(out + i, load(in + i));
  if (i < n) store_bf16_first(out + i, n - i, load_first(in + i, n - i, 0.0f));
}

}  // namespace
}  // namespace lmhead
