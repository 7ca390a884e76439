// Quantised rows as float32 vectors: an element is scale * q, rounded once, whoever asks for it.
// It knows the storage of integers and scales; it refuses to know what the rows are for.
#pragma once

#include "kernels/table.hpp"
#include "simd/lanes.hpp"

namespace lmhead {
namespace {

// 32 elements at a time, as two halves of kParts<float> registers each.
constexpr int64_t kTogether = 32;
constexpr int kHalf = 16;

// How integers are stored. `prepare` makes of a scale in every lane what the products want; `scaled` is register p of a half of the 32
// elements at w, scaled_first one of which only n elements exist.
struct Int8 {
  static constexpr ptrdiff_t kBytes = kTogether;
  static const int8_t* place(const char* w, int half, int p) { return reinterpret_cast<const int8_t*>(w) + half * kHalf + p * kLanes<float>; }
  static VF prepare(VF scale) { return scale; }
  static VF scaled(const char* w, VF scale, int half, int p) { return mul(load_i8(place(w, half, p)), scale); }
  static VF scaled_first(const char* w, VF scale, int half, int p, ptrdiff_t n) { return mul(load_i8_first(place(w, half, p), n), scale); }
};

struct Int4 {
  static constexpr ptrdiff_t kBytes = kTogether / 2;
  static VF prepare(VF scale) { return i4_scale(scale); }
  static VF scaled(const char* w, VF scale, int half, int p) {
    const auto* at = reinterpret_cast<const uint8_t*>(w) + p * kLanes<float>;
    return half == 0 ? scaled_i4_low(at, scale) : scaled_i4_high(at, scale);
  }
  static VF scaled_first(const char* w, VF scale, int half, int p, ptrdiff_t) { return scaled(w, scale, half, p); }  // the bytes are there
};

template <class Q, bool half_scales>
inline VF load_scale(const char* p) {
  if (half_scales) return Q::prepare(broadcast_f16(reinterpret_cast<const uint16_t*>(p)));
  float x;
  __builtin_memcpy(&x, p, 4);
  return Q::prepare(broadcast(x));
}

// Elements of the register that do not exist are +0, whatever the scale.
template <class Q>
inline VF elements_first(const char* w, VF scale, int half, int p, ptrdiff_t n) {
  return select_or_zero(first_lanes(n, static_cast<const float*>(nullptr)), Q::scaled_first(w, scale, half, p, n));
}

template <class Q, bool half_scales>
void dequantize_as(const QuantizedRows& rows, int64_t row, int64_t first, int64_t n, float* out) {
  constexpr int lanes = kLanes<float>;
  int64_t group = first / rows.group, within = first % rows.group;
  for (int64_t done = 0; done < n; ++group, within = 0) {
    const int64_t count = rows.group - within < n - done ? rows.group - within : n - done;
    const char* w = rows.values + row * rows.values_row_stride + group * rows.values_group_stride + within / kTogether * Q::kBytes;
    const VF scale = load_scale<Q, half_scales>(rows.scales + row * rows.scales_row_stride + group * rows.scales_group_stride);
    float* to = out + done;
    int64_t d = 0;
    for (; d + kTogether <= count; d += kTogether, w += Q::kBytes)
      LMHEAD_UNROLL
      for (int half = 0; half < 2; ++half)
        LMHEAD_UNROLL
        for (int p = 0; p < kParts<float>; ++p) store(to + d + half * kHalf + p * lanes, Q::scaled(w, scale, half, p));
    if (d < count)
      for (int half = 0; half < 2; ++half)
        for (int p = 0; p < kParts<float>; ++p) {
          const int64_t at = d + half * kHalf + p * lanes;
          if (at < count) store_first(to + at, count - at, elements_first<Q>(w, scale, half, p, count - at));
        }
    done += count;
  }
}

// run(integers, half_scales) for the storage at hand.
template <class Run>
inline void with_storage(const QuantizedRows& rows, Run run) {
  if (rows.bits == 8) rows.half_scales ? run(Int8{}, Constant<1>{}) : run(Int8{}, Constant<0>{});
  else rows.half_scales ? run(Int4{}, Constant<1>{}) : run(Int4{}, Constant<0>{});
}

inline void dequantize(const QuantizedRows& rows, int64_t row, int64_t first, int64_t n, float* out) {
  with_storage(rows, [&](auto integers, auto half) { dequantize_as<decltype(integers), decltype(half)::value != 0>(rows, row, first, n, out); });
}

}  // namespace
}  // namespace lmhead
