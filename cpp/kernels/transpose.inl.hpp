// A transpose of 32-bit words, in blocks of the ISA's registers: a stretch of a (D, V) weight becomes rows.
// It knows words; it refuses to know what they mean.
#pragma once

#include "simd/lanes.hpp"

namespace lmhead {
namespace {

// out[c * out_stride + r] = in[r * in_stride + c]
inline void transpose_words(const uint32_t* in, ptrdiff_t in_stride, int64_t rows, int64_t columns, uint32_t* out, ptrdiff_t out_stride) {
  constexpr int64_t block = kTransposeBlock;
  const int64_t whole_rows = rows / block * block, whole_columns = columns / block * block;
  for (int64_t c = 0; c < whole_columns; c += block)
    for (int64_t r = 0; r < whole_rows; r += block) transpose_block(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
}

}  // namespace
}  // namespace lmhead
