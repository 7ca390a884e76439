// Quantising and its inverse: a matrix of floats as integers in groups that share a scale. Arguments have been checked.
#pragma once

#include "core/rows.hpp"

namespace lmhead {

// Where integers and scales go, side by side: values (V, value_bytes) and scales (V, groups).
struct QuantizeTarget {
  int bits;             // 8 or 4
  int64_t group;        // elements, at least 1
  bool half_scales;
  char* values;
  ptrdiff_t value_bytes;  // of a row
  char* scales;
};

// The first row that cannot be quantised, and why.
struct QuantizeRefusal {
  enum Reason { none, not_finite, scale_too_large, scale_too_small };
  Reason reason = none;
  int64_t row = -1;
  double value = 0;  // what is not finite, or the greatest magnitude of the group
};

// scale = max|w| / 127 (7), q = w / scale to the nearest integer, ties to even. Rows after a refused one may be written or not.
QuantizeRefusal quantize(const Rows& weight, const QuantizeTarget& out, int threads);

// The greatest q.
constexpr int quantized_limit(int bits) { return bits == 8 ? 127 : 7; }
// Bytes of a row's integers; 4 bits go in 16 bytes for each 32 elements.
constexpr ptrdiff_t quantized_bytes(int bits, int64_t width) { return bits == 8 ? width : (width + 31) / 32 * 16; }

}  // namespace lmhead
