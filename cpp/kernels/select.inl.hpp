// Which logits of a stretch of a row can still enter its k best: greater than the threshold, or NaN.
// It knows one comparison; it refuses to know k, lists and order.
#pragma once

#include "kernels/table.hpp"
#include "simd/lanes.hpp"

namespace lmhead {
namespace {

template <class T>
int64_t select_above(const T* z, int64_t n, T threshold, uint16_t* places) {
  constexpr int lanes = kLanes<T>;
  // Four registers a test: candidates are rare once the threshold has settled.
  constexpr int wide = 4;
  const Vector<T> bar = broadcast(threshold);
  int64_t count = 0;
  const auto append = [&](uint32_t bits, int64_t at) {
    for (; bits; bits &= bits - 1) places[count++] = static_cast<uint16_t>(at + __builtin_ctz(bits));
  };
  int64_t i = 0;
  for (; i + wide * lanes <= n; i += wide * lanes) {
    auto any = not_less_equal(load(z + i), bar);
    for (int w = 1; w < wide; ++w) any = either(any, not_less_equal(load(z + i + w * lanes), bar));
    if (mask_bits(any) == 0) continue;
    for (int w = 0; w < wide; ++w) append(mask_bits(not_less_equal(load(z + i + w * lanes), bar)), i + w * lanes);
  }
  for (; i < n; ++i)
    if (!(z[i] <= threshold)) places[count++] = static_cast<uint16_t>(i);
  return count;
}

}  // namespace
}  // namespace lmhead
