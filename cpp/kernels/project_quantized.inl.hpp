// The projection on quantised rows where they lie, for few hidden rows: integers become float32 in registers, by the same
// product as everywhere else, and meet the hidden rows in the order of kernels/project.inl.hpp, so a logit has the bits of the
// dequantised row's.
// It knows tiles; it refuses to know vocabularies and threads.
#pragma once

#include "kernels/quantized.inl.hpp"

namespace lmhead {
namespace {

// How far ahead of the registers memory is asked for: whole tiles, at least so much. Rows of 576 bytes read 20 % faster than with
// 4 KiB; 32 KiB brings nothing.
constexpr ptrdiff_t kAheadBytes = 16 * 1024;
constexpr int kLine = 64;

// M hidden rows x N weight rows. Meanwhile the rows of a later tile are fetched, as one run of memory, as many bytes as are used:
// rows that lie side by side then come as a single stream, though N of them are read at once.
template <class Q, bool half_scales, int M, int N>
__attribute__((noinline)) void project_quantized_tile(const ProjectQuantized& t, const float* hidden, ptrdiff_t stride, int64_t id, float* out) {
  constexpr int parts = kParts<float>, lanes = kLanes<float>;
  const QuantizedRows& rows = t.weight;
  const char *w[N], *scales[N];
  LMHEAD_UNROLL
  for (int n = 0; n < N; ++n) {
    w[n] = rows.values + (id + n) * rows.values_row_stride;
    scales[n] = rows.scales + (id + n) * rows.scales_row_stride;
  }
  const ptrdiff_t rows_bytes = N * rows.values_row_stride;
  const ptrdiff_t tiles = rows_bytes > 0 && rows_bytes < kAheadBytes ? (kAheadBytes + rows_bytes - 1) / rows_bytes : 1;
  const char* ahead = w[0] + tiles * rows_bytes;
  const char* scales_ahead = scales[0] + tiles * N * rows.scales_row_stride;
  VF sum[parts][M][N];
  LMHEAD_UNROLL
  for (int p = 0; p < parts; ++p)
    LMHEAD_UNROLL
    for (int m = 0; m < M; ++m)
      LMHEAD_UNROLL
      for (int n = 0; n < N; ++n) sum[p][m][n] = broadcast(0.0f);
  const int64_t width = t.width;
  ptrdiff_t scale_at = 0, group_at = 0;
  for (int64_t first = 0; first < width; first += rows.group, scale_at += rows.scales_group_stride, group_at += rows.values_group_stride) {
    VF scale[N];
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) scale[n] = load_scale<Q, half_scales>(scales[n] + scale_at);
    prefetch_l2(scales_ahead + N * scale_at);
    const int64_t end = first + rows.group < width ? first + rows.group : width;
    ptrdiff_t at = group_at;
    int64_t d = first;
    for (; d + kTogether <= end; d += kTogether, at += Q::kBytes) {
      LMHEAD_UNROLL
      for (int line = 0; line <= N * Q::kBytes; line += kLine) prefetch_l2(ahead + N * at + line);  // one more: groups may stand apart
      LMHEAD_UNROLL
      for (int half = 0; half < 2; ++half)
        LMHEAD_UNROLL
        for (int p = 0; p < parts; ++p) {
          VF h[M];
          LMHEAD_UNROLL
          for (int m = 0; m < M; ++m) {
            h[m] = load(hidden + m * stride + d + half * kHalf + p * lanes);
            keep_in_register(h[m]);
          }
          LMHEAD_UNROLL
          for (int n = 0; n < N; ++n) {
            const VF x = Q::scaled(w[n] + at, scale[n], half, p);
            LMHEAD_UNROLL
            for (int m = 0; m < M; ++m) sum[p][m][n] = mul_add(h[m], x, sum[p][m][n]);
          }
        }
    }
    // Lanes of a last step of 16 that have no element take 0 * 0; a step without any element is none.
    for (int half = 0; half < 2; ++half) {
      if (d + half * kHalf >= end) break;
      LMHEAD_UNROLL
      for (int p = 0; p < parts; ++p) {
        const int64_t left = end - d - half * kHalf - p * lanes;
        LMHEAD_UNROLL
        for (int n = 0; n < N; ++n) {
          const VF x = half == 0 ? elements_first<Q>(w[n] + at, scale[n], 0, p, left) : elements_first<Q>(w[n] + at, scale[n], 1, p, left);
          LMHEAD_UNROLL
          for (int m = 0; m < M; ++m) sum[p][m][n] = mul_add(load(hidden + m * stride + d + half * kHalf + p * lanes), x, sum[p][m][n]);
        }
      }
    }
  }
  LMHEAD_UNROLL
  for (int m = 0; m < M; ++m)
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) {
      VF of_parts[parts];
      LMHEAD_UNROLL
      for (int p = 0; p < parts; ++p) of_parts[p] = sum[p][m][n];
      out[m * t.out_stride + n] = reduce_parts<float>(of_parts);
    }
}

// N ids against all hidden rows, which find the weight in cache after the first of them.
template <class Q, bool half_scales, int N>
inline void project_quantized_ids(const ProjectQuantized& t, int64_t id) {
  const ptrdiff_t stride = t.hidden_stride / static_cast<ptrdiff_t>(sizeof(float));
  int64_t r = 0;
  const auto tile = [&](auto rows_in_tile) {
    constexpr int M = decltype(rows_in_tile)::value;
    project_quantized_tile<Q, half_scales, M, N>(t, static_cast<const float*>(t.hidden) + r * stride, stride, t.first_id + id,
                                                 t.out + r * t.out_stride + id);
    r += M;
  };
  while (r + kQuantizedRows <= t.n_rows) tile(Constant<kQuantizedRows>{});
  if constexpr (kQuantizedRows > 3) { if (r + 3 == t.n_rows) tile(Constant<3>{}); }
  if constexpr (kQuantizedRows > 2) { if (r + 2 <= t.n_rows) tile(Constant<2>{}); }
  if constexpr (kQuantizedRows > 1) { if (r < t.n_rows) tile(Constant<1>{}); }
}

inline void project_quantized(const ProjectQuantized& t) {
  with_storage(t.weight, [&](auto integers, auto half) {
    using Q = decltype(integers);
    constexpr bool half_scales = decltype(half)::value != 0;
    int64_t id = 0;
    if (t.n_rows == 1)
      for (; id + kQuantizedIdsOneRow <= t.n_ids; id += kQuantizedIdsOneRow) project_quantized_ids<Q, half_scales, kQuantizedIdsOneRow>(t, id);
    for (; id + kQuantizedIds <= t.n_ids; id += kQuantizedIds) project_quantized_ids<Q, half_scales, kQuantizedIds>(t, id);
    for (; id < t.n_ids; ++id) project_quantized_ids<Q, half_scales, 1>(t, id);
  });
}

}  // namespace
}  // namespace lmhead
