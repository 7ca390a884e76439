// The projection as a register tile of dot products: M hidden rows x N weight rows over the whole width, straight on the
// weight rows where they lie. D is never split, so a logit is one fixed chain of FMAs a lane and one reduction tree, for
// every tile shape, batch and ISA.
// It knows tiles; it refuses to know vocabularies, threads and what the logits are for.
#pragma once

#include "kernels/rows.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

template <class Row, int M, int N>
struct Accumulators {
  Vector<typename Row::T> sum[kParts<typename Row::T>][M][N];
};

template <class Row, int M, int N, bool tail>
inline __attribute__((always_inline)) void project_step(Accumulators<Row, M, N>& acc, const typename Row::Hidden* hidden,
                                                        ptrdiff_t hidden_stride, const typename Row::Stored* const* w,
                                                        ptrdiff_t d, ptrdiff_t left) {
  for (int half = 0; half < Row::kHalves; ++half)
    for (int p = 0; p < kParts<typename Row::T>; ++p) {
      typename Row::Operand weight[N];
      for (int n = 0; n < N; ++n) {
        weight[n] = tail ? Row::load_tail(w[n] + d, half, p, left) : Row::load(w[n] + d, half, p);
        keep_in_register(weight[n]);
      }
      for (int m = 0; m < M; ++m) {
        typename Row::Operand h = Row::load_hidden(hidden + m * hidden_stride + d, half, p);
        keep_in_register(h);
        for (int n = 0; n < N; ++n) acc.sum[p][m][n] = Row::multiply_add(h, weight[n], acc.sum[p][m][n]);
      }
    }
}

template <class Row, int M, int N>
inline void reduce_tile(const Accumulators<Row, M, N>& acc, typename Row::T* out, ptrdiff_t out_stride) {
  using T = typename Row::T;
#ifdef __AVX512F__
  if constexpr (M == 4 && N == 6 && sizeof(T) == 4) {
    tile_reduce(&acc.sum[0][0][0], out, out_stride);
    return;
  }
#endif
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      Vector<T> parts[kParts<T>];
      for (int p = 0; p < kParts<T>; ++p) parts[p] = acc.sum[p][m][n];
      out[m * out_stride + n] = reduce_parts<T>(parts);
    }
}

// `ahead`: null, or the rows of the next tile, fetched to L2 while this tile computes.
template <class Row, int M, int N>
__attribute__((noinline)) void project_tile(const typename Row::Hidden* hidden, ptrdiff_t hidden_stride, const void* const* rows,
                                            const void* const* ahead, ptrdiff_t width, typename Row::T* out,
                                            ptrdiff_t out_stride) {
  using T = typename Row::T;
  using Stored = typename Row::Stored;
  const Stored* w[N];
  for (int n = 0; n < N; ++n) w[n] = static_cast<const Stored*>(rows[n]);
  Accumulators<Row, M, N> acc;
  for (int p = 0; p < kParts<T>; ++p)
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n) acc.sum[p][m][n] = broadcast(T(0));
  constexpr ptrdiff_t step = Row::kStep;
  ptrdiff_t d = 0;
  if (ahead) {
    const Stored* next[N];
    for (int n = 0; n < N; ++n) next[n] = static_cast<const Stored*>(ahead[n]);
    for (; d + step <= width; d += step) {
      for (int n = 0; n < N; ++n) prefetch_l2(next[n] + d);
      project_step<Row, M, N, false>(acc, hidden, hidden_stride, w, d, step);
    }
  } else {
    for (; d + step <= width; d += step) project_step<Row, M, N, false>(acc, hidden, hidden_stride, w, d, step);
  }
  if (d < width) project_step<Row, M, N, true>(acc, hidden, hidden_stride, w, d, width - d);
  reduce_tile<Row, M, N>(acc, out, out_stride);
}

// N ids against all hidden rows [row0, row1): full tiles, then one tile of what is left.
template <class Row, int N>
inline void project_ids(const ProjectTile& t, int64_t row0, int64_t row1, int64_t id) {
  using Hidden = typename Row::Hidden;
  const ptrdiff_t stride = t.hidden_stride / static_cast<ptrdiff_t>(sizeof(Hidden));
  const Hidden* hidden = static_cast<const Hidden*>(t.hidden);
  typename Row::T* out = static_cast<typename Row::T*>(t.out) + id;
  const void* const* rows = t.weight_rows + id;
  const void* const* ahead = id + 2 * N <= t.n_ids ? rows + N : nullptr;
  int64_t r = row0;
  const auto tile = [&](auto rows_in_tile) {
    constexpr int M = decltype(rows_in_tile)::value;
    project_tile<Row, M, N>(hidden + r * stride, stride, rows, ahead, t.width, out + r * t.out_stride, t.out_stride);
    ahead = nullptr;
    r += M;
  };
  while (r + kTileRows <= row1) tile(Constant<kTileRows>{});
  if constexpr (kTileRows > 3) { if (row1 - r == 3) tile(Constant<3>{}); }
  if constexpr (kTileRows > 2) { if (row1 - r == 2) tile(Constant<2>{}); }
  if constexpr (kTileRows > 1) { if (row1 - r == 1) tile(Constant<1>{}); }
}

// Hidden rows that stay in L2 (1 MiB on Zen 4, shared with the weight rows) while the weight rows of a call pass.
constexpr ptrdiff_t kHiddenBytesInCache = 512 * 1024;

template <class Row>
void project(const ProjectTile& t) {
  const int64_t fit = kHiddenBytesInCache / (t.hidden_stride > 0 ? t.hidden_stride : 1) / kTileRows * kTileRows;
  const int64_t rows_in_cache = fit > kTileRows ? fit : kTileRows;
  for (int64_t row0 = 0; row0 < t.n_rows; row0 += rows_in_cache) {
    const int64_t row1 = row0 + rows_in_cache < t.n_rows ? row0 + rows_in_cache : t.n_rows;
    int64_t id = 0;
    if (row1 - row0 == 1)
      for (; id + kTileIdsOneRow <= t.n_ids; id += kTileIdsOneRow) project_ids<Row, kTileIdsOneRow>(t, row0, row1, id);
    for (; id + kTileIds <= t.n_ids; id += kTileIds) project_ids<Row, kTileIds>(t, row0, row1, id);
    if constexpr (kTileIds > 2)
      for (; id + 2 <= t.n_ids; id += 2) project_ids<Row, 2>(t, row0, row1, id);
    for (; id < t.n_ids; ++id) project_ids<Row, 1>(t, row0, row1, id);
  }
}

}  // namespace
}  // namespace lmhead
