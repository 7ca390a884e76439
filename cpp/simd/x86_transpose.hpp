// An 8 x 8 transpose of 32-bit words, shared by the AVX2 and AVX-512 vocabularies.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "simd/unroll.hpp"

namespace lmhead {
namespace {

constexpr int kTransposeBlock = 8;

// out[c * out_stride + r] = in[r * in_stride + c]: pairs of rows, then pairs of pairs, then halves of registers.
inline void transpose_block(const uint32_t* in, ptrdiff_t in_stride, uint32_t* out, ptrdiff_t out_stride) {
  __m256 row[8], pair[8], quad[8];
  LMHEAD_UNROLL
  for (int r = 0; r < 8; ++r) row[r] = _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i*)(in + r * in_stride)));
  LMHEAD_UNROLL
  for (int r = 0; r < 8; r += 2) {
    pair[r] = _mm256_unpacklo_ps(row[r], row[r + 1]);
    pair[r + 1] = _mm256_unpackhi_ps(row[r], row[r + 1]);
  }
  LMHEAD_UNROLL
  for (int r = 0; r < 8; r += 4) {
    quad[r] = _mm256_shuffle_ps(pair[r], pair[r + 2], 0x44);
    quad[r + 1] = _mm256_shuffle_ps(pair[r], pair[r + 2], 0xee);
    quad[r + 2] = _mm256_shuffle_ps(pair[r + 1], pair[r + 3], 0x44);
    quad[r + 3] = _mm256_shuffle_ps(pair[r + 1], pair[r + 3], 0xee);
  }
  LMHEAD_UNROLL
  for (int c = 0; c < 4; ++c) {
    _mm256_storeu_si256((__m256i*)(out + c * out_stride), _mm256_castps_si256(_mm256_permute2f128_ps(quad[c], quad[c + 4], 0x20)));
    _mm256_storeu_si256((__m256i*)(out + (c + 4) * out_stride), _mm256_castps_si256(_mm256_permute2f128_ps(quad[c], quad[c + 4], 0x31)));
  }
}

}  // namespace
}  // namespace lmhead
