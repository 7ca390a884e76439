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

}  // namespace
}  // namespace lmhead
