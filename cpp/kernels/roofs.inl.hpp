// The roofs that benches divide by: how fast this table's registers read a buffer and multiply.
// It knows nothing of language-model heads.
#pragma once

#include "simd/lanes.hpp"

namespace lmhead {
namespace {

// Reads `streams` equal parts side by side, whole groups of 4 lines; returns the bytes read.
inline double read_all(const void* data, int64_t bytes, int streams) {
  const float* base = static_cast<const float*>(data);
  const int64_t per_stream = bytes / streams / 256 * 64;  // floats, whole groups of 4 lines
  for (int64_t i = 0; i < per_stream; i += 64)
    for (int s = 0; s < streams; ++s) {
      const float* at = base + s * per_stream + i;
      for (int line = 0; line < 4; ++line)
        for (int p = 0; p < kParts<float>; ++p) {
          use(load(at + 16 * line + p * kLanes<float>));
        }
    }
  return static_cast<double>(per_stream) * 4.0 * streams;
}

// 12 chains: more than latency (4 or 5 cycles) x throughput (at most 2 a cycle) of every CPU these tables run on.
inline double multiply_f32(int64_t rounds) {
  constexpr int chains = 12;
  VF sums[chains];
  for (int c = 0; c < chains; ++c) sums[c] = broadcast(float(c));
  const VF a = broadcast(0.999f), b = broadcast(0.001f);
  for (int64_t r = 0; r < rounds; ++r)
    LMHEAD_UNROLL
    for (int c = 0; c < chains; ++c) sums[c] = mul_add(sums[c], a, b);
  for (int c = 0; c < chains; ++c) use(sums[c]);
  return 2.0 * chains * kLanes<float> * static_cast<double>(rounds);
}

template <class Dot>
inline double multiply_bf16(int64_t rounds) {
  constexpr int chains = 12;
  VF sums[chains];
  for (int c = 0; c < chains; ++c) sums[c] = broadcast(0.0f);
  const uint16_t one[2] = {0x3f80, 0x3f80}, little[2] = {0x3c00, 0x3c00};
  const typename Dot::Pairs a = Dot::broadcast(one), b = Dot::broadcast(little);
  for (int64_t r = 0; r < rounds; ++r)
    LMHEAD_UNROLL
    for (int c = 0; c < chains; ++c) sums[c] = Dot::multiply_add(a, b, sums[c]);
  for (int c = 0; c < chains; ++c) use(sums[c]);
  return 4.0 * chains * 16 * static_cast<double>(rounds);
}

}  // namespace
}  // namespace lmhead
