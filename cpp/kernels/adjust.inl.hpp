// bias, softcap, scale on a row of logits, in that order; only ids that exist pass through it.
// It knows the formula; it refuses to know folds.
#pragma once

#include "kernels/exp.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

// Below this, tanh(y) = y - y^3 / 3 + ... is y to half a unit in the last place; y itself might be subnormal under a great cap.
template <class T> constexpr T kLinear = sizeof(T) == 4 ? T(0x1p-13) : T(0x1p-27);

template <class T>
void adjust_row(const AdjustRow& a) {
  constexpr int lanes = kLanes<T>;
  T* z = static_cast<T*>(a.logits);
  const T* bias = static_cast<const T*>(a.bias);
  const T cap = static_cast<T>(a.softcap), scale = static_cast<T>(a.scale);
  for (int64_t i = 0; i < a.n; i += lanes) {
    const int64_t left = a.n - i;
    Vector<T> x = load_first(z + i, left, T(0));
    if (bias) x = add(x, load_first(bias + i, left, T(0)));
    if (a.softcap != 0) {
      const Vector<T> capped = mul(broadcast(cap), tanh_of<T>(div(x, broadcast(cap))));
      x = select(not_less(abs(x), broadcast(cap * kLinear<T>)), capped, x);
    }
    if (a.scale != 1) x = mul(x, broadcast(scale));
    store_first(z + i, left, x);
  }
}

// The derivative of the above at raw logits: scale * (1 - tanh^2), as 4 q / (1 + q)^2 with q = exp(-2 |x / cap|), which keeps
// its digits where tanh is nearly 1. Raw logits stay as they are.
template <class T>
void adjust_slopes(const AdjustRow& a, void* slopes) {
  constexpr int lanes = kLanes<T>;
  const T* z = static_cast<const T*>(a.logits);
  const T* bias = static_cast<const T*>(a.bias);
  T* out = static_cast<T*>(slopes);
  const Vector<T> one = broadcast(T(1)), scale = broadcast(static_cast<T>(a.scale));
  for (int64_t i = 0; i < a.n; i += lanes) {
    const int64_t left = a.n - i;
    Vector<T> slope = one;
    if (a.softcap != 0) {
      Vector<T> x = load_first(z + i, left, T(0));
      if (bias) x = add(x, load_first(bias + i, left, T(0)));
      const Vector<T> y = abs(div(x, broadcast(static_cast<T>(a.softcap))));
      const Vector<T> q = exp_below_one<T>(mul(y, broadcast(T(-2)))), sum = add(one, q);
      slope = div(mul(broadcast(T(4)), q), mul(sum, sum));
    }
    store_first(out + i, left, mul(slope, scale));
  }
}

}  // namespace
}  // namespace lmhead
