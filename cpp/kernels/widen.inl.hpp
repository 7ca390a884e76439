// Half precision to float32, exactly: contiguous runs, as rows of logits and of packed weights need them.
// It knows runs; it refuses to know strides.
#pragma once

#include "simd/lanes.hpp"

namespace lmhead {
namespace {

inline void widen_f16(const uint16_t* in, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes<float> <= n; i += kLanes<float>) store(out + i, load_f16(in + i));
  if (i < n) store_first(out + i, n - i, load_f16_first(in + i, n - i));
}

inline void widen_bf16(const uint16_t* in, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes<float> <= n; i += kLanes<float>) store(out + i, load_bf16(in + i));
  if (i < n) store_first(out + i, n - i, load_bf16_first(in + i, n - i));
}

// Each 32 elements as their 16 odd ones and then their 16 even ones; the last group is filled up with zeros.
inline void widen_bf16_pairs(const uint16_t* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 32)
    for (int p = 0; p < kParts<float>; ++p) {
      const int64_t at = i + 2 * p * kLanes<float>;
      store(out + i + p * kLanes<float>, load_bf16_odd_first(in + at, n - at));
      store(out + i + 16 + p * kLanes<float>, load_bf16_even_first(in + at, n - at));
    }
}

}  // namespace
}  // namespace lmhead
