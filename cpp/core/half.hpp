// float32 to float16, nearest even: results that are rounded once at their end. (bfloat16 is a kernel, `narrow_bf16`.)
// And the way of a float64 to either half, also rounded once.
#pragma once

#include <cstdint>
#include <cstring>

namespace lmhead {

// A float64 as a float32 whose last bit stands for whatever was cut off (round to odd), which leaves a second rounding to a half correct.
inline float narrow_to_odd(double x) {
  float narrow = static_cast<float>(x);
  uint32_t u;
  std::memcpy(&u, &narrow, 4);
  const double found = narrow;
  if (x != x || found == x || (u & 1u)) return narrow;
  u += (found < 0 ? -found : found) > (x < 0 ? -x : x) ? -1u : 1u;
  std::memcpy(&narrow, &u, 4);
  return narrow;
}

inline uint16_t narrow_f16(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  const uint16_t sign = static_cast<uint16_t>(u >> 16 & 0x8000u);
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (u >> 13 & 0x3ffu));
  if (u >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520, half a unit above the greatest
  if (u < 0x38800000u) {  // subnormal: units of 2^-24, which adding 0.5 brings to the end of the mantissa
    float magnitude;
    std::memcpy(&magnitude, &u, 4);
    const float aligned = magnitude + 0.5f;
    uint32_t bits;
    std::memcpy(&bits, &aligned, 4);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  const uint32_t rounded = u + 0xfffu + (u >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((rounded - ((127u - 15u) << 23)) >> 13));
}

}  // namespace lmhead
