// Products with coefficients that are mostly 0: which are not, and the sum of their rows.
// It knows lists of terms; it refuses to know what was filtered and why.
#pragma once

#include "kernels/table.hpp"
#include "simd/lanes.hpp"

namespace lmhead {
namespace {

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

// Registers of a sum that are kept through all terms: two chains for each of the four cycles of an FMA, and they fit any ISA.
constexpr int kActiveRegisters = 8;

template <class T>
void contract_active(const ActiveSum<T>& a) {
  constexpr int lanes = kLanes<T>, wide = kActiveRegisters * lanes;
  int64_t c = 0;
  for (; c + wide <= a.n_columns; c += wide) {
    Vector<T> sums[kActiveRegisters];
    LMHEAD_UNROLL
    for (int i = 0; i < kActiveRegisters; ++i) sums[i] = a.from_zero ? broadcast(T(0)) : load(a.out + c + i * lanes);
    for (int64_t k = 0; k < a.n_terms; ++k) {
      const Vector<T> factor = broadcast(a.coefficients[k]);
      const T* row = a.rows[k] + c;
      LMHEAD_UNROLL
      for (int i = 0; i < kActiveRegisters; ++i) sums[i] = mul_add(factor, load(row + i * lanes), sums[i]);
    }
    LMHEAD_UNROLL
    for (int i = 0; i < kActiveRegisters; ++i) store(a.out + c + i * lanes, sums[i]);
  }
  for (; c < a.n_columns; c += lanes) {
    const int64_t left = a.n_columns - c;
    Vector<T> sum = a.from_zero ? broadcast(T(0)) : load_first(a.out + c, left, T(0));
    for (int64_t k = 0; k < a.n_terms; ++k) sum = mul_add(broadcast(a.coefficients[k]), load_first(a.rows[k] + c, left, T(0)), sum);
    store_first(a.out + c, left, sum);
  }
}

}  // namespace
}  // namespace lmhead
