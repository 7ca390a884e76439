// Sums of listed rows: products whose other coefficients are 0.
// It knows lists of terms; it refuses to know what was filtered and why.
#pragma once

#include "kernels/table.hpp"
#include "simd/lanes.hpp"

namespace lmhead {
namespace {

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
