// Places in a stretch of a row: those that can still enter its k best (greater than the threshold, or NaN), the first that holds a
// value, how many are better than one, those that are not 0.
// It knows comparisons; it refuses to know k, lists and order.
#pragma once

#include "kernels/exp.inl.hpp"
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

// The first place that holds `value` (NaN: the first NaN), or n.
template <class T>
int64_t find_first(const T* z, int64_t n, T value) {
  constexpr int lanes = kLanes<T>;
  const Vector<T> wanted = broadcast(value);
  const bool nan = value != value;
  for (int64_t i = 0; i < n; i += lanes) {
    const Vector<T> x = load_first(z + i, n - i, nan ? T(0) : T(__builtin_nan("")));
    const uint32_t bits = nan ? mask_bits(not_less_equal(x, x)) : mask_bits(equal(x, wanted));
    if (bits) return i + __builtin_ctz(bits);
  }
  return n;
}

// How many of n numbers compare so with `value`.
template <class T, class Compare>
inline int64_t count_where(const T* z, int64_t n, T value, Compare compare) {
  constexpr int lanes = kLanes<T>;
  const Vector<T> bar = broadcast(value);
  int64_t count = 0, i = 0;
  const auto add = [&](uint32_t bits) {
    // Where there is no instruction for it, a count of bits is a function of the compiler's library.
    if constexpr (lanes == 1) count += bits;
    else count += __builtin_popcount(bits);
  };
  for (; i + lanes <= n; i += lanes) add(mask_bits(compare(load(z + i), bar)));
  if (i < n) add(mask_bits(compare(load_first(z + i, n - i, T(0)), bar)) & ((uint32_t(1) << (n - i)) - 1));
  return count;
}

// How many of n numbers come before `value` in a list whose best are first: greater ones and NaN; among the first n_before also equal
// ones. Before NaN come only the NaNs among the first n_before.
template <class T>
int64_t count_better(const T* z, int64_t n, T value, int64_t n_before) {
  const auto reaches = [](auto x, auto bar) { return not_less(x, bar); };
  const auto exceeds = [](auto x, auto bar) { return not_less_equal(x, bar); };
  if (value != value) return count_where(z, n_before, kInfinity<T>, exceeds);
  return count_where(z, n_before, value, reaches) + count_where(z + n_before, n - n_before, value, exceeds);
}

// Places and values of what is not 0 (NaN is not), in ascending order; returns how many.
template <class T>
int64_t find_active(const T* g, int64_t n, uint16_t* places, T* values) {
  constexpr int lanes = kLanes<T>;
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += lanes) {
    const uint32_t zeros = mask_bits(equal(load_first(g + i, n - i, T(0)), broadcast(T(0))));
    for (uint32_t bits = ~zeros & static_cast<uint32_t>((uint64_t(1) << lanes) - 1); bits; bits &= bits - 1) {
      const int64_t at = i + __builtin_ctz(bits);
      places[count] = static_cast<uint16_t>(at);
      values[count++] = g[at];
    }
  }
  return count;
}

}  // namespace
}  // namespace lmhead
