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
  LMHEAD_UNROLL
  for (int half = 0; half < Row::kHalves; ++half)
    LMHEAD_UNROLL
    for (int p = 0; p < kParts<typename Row::T>; ++p) {
      typename Row::Operand weight[N];
      LMHEAD_UNROLL
      for (int n = 0; n < N; ++n) {
        weight[n] = tail ? Row::load_tail(w[n] + d, half, p, left) : Row::load(w[n] + d, half, p);
        keep_in_register(weight[n]);
      }
      LMHEAD_UNROLL
      for (int m = 0; m < M; ++m) {
        typename Row::Operand h = Row::load_hidden(hidden + m * hidden_stride + d, half, p);
        keep_in_register(h);
        LMHEAD_UNROLL
        for (int n = 0; n < N; ++n) acc.sum[p][m][n] = Row::multiply_add(h, weight[n], acc.sum[p][m][n]);
      }
    }
}

template <class Row, int M, int N>
inline void reduce_tile(const Accumulators<Row, M, N>& acc, typename Row::T* out, ptrdiff_t out_stride) {
  using T = typename Row::T;
  if constexpr (kHasTileReduce && M == kTileRows && N == kTileIds && sizeof(T) == 4) {
    tile_reduce(&acc.sum[0][0][0], out, out_stride);
    return;
  }
  LMHEAD_UNROLL
  for (int m = 0; m < M; ++m)
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) {
      Vector<T> parts[kParts<T>];
      LMHEAD_UNROLL
      for (int p = 0; p < kParts<T>; ++p) parts[p] = acc.sum[p][m][n];
      out[m * out_stride + n] = reduce_parts<T>(parts);
    }
}

// One hidden row on one weight row after another is a single stream, which the hardware follows best when it is touched this
// far ahead: measured, 1 KiB reads 25 to 45 % faster than a whole tile ahead, 4 KiB no faster.
constexpr int kNear = -1;
constexpr ptrdiff_t kNearBytes = 1024;

// What is fetched to L2 while a tile computes: `A` rows of `ahead`, or, for A = kNear, its own rows kNearBytes ahead and then
// the first kNearBytes of the rows of `ahead`.
template <class Row, int M, int N, int A>
__attribute__((noinline)) void project_tile(const typename Row::Hidden* hidden, ptrdiff_t hidden_stride, const void* const* rows,
                                            const void* const* ahead, ptrdiff_t width, typename Row::T* out,
                                            ptrdiff_t out_stride) {
  using T = typename Row::T;
  using Stored = typename Row::Stored;
  const Stored* w[N];
  LMHEAD_UNROLL
  for (int n = 0; n < N; ++n) w[n] = static_cast<const Stored*>(rows[n]);
  constexpr int n_next = A == kNear ? N : A;
  const Stored* next[n_next + 1];
  LMHEAD_UNROLL
  for (int n = 0; n < n_next; ++n) next[n] = static_cast<const Stored*>(ahead[n]);
  Accumulators<Row, M, N> acc;
  LMHEAD_UNROLL
  for (int p = 0; p < kParts<T>; ++p)
    LMHEAD_UNROLL
    for (int m = 0; m < M; ++m)
      LMHEAD_UNROLL
      for (int n = 0; n < N; ++n) acc.sum[p][m][n] = broadcast(T(0));
  constexpr ptrdiff_t step = Row::kStep;
  ptrdiff_t d = 0;
  if constexpr (A == kNear) {
    constexpr ptrdiff_t distance = kNearBytes / static_cast<ptrdiff_t>(sizeof(Stored));
    for (; d + step <= width - distance; d += step) {
      LMHEAD_UNROLL
      for (int n = 0; n < N; ++n) prefetch_l2(w[n] + d + distance);
      project_step<Row, M, N, false>(acc, hidden, hidden_stride, w, d, step);
    }
    const ptrdiff_t wrap = d;
    for (; d + step <= width; d += step) {
      LMHEAD_UNROLL
      for (int n = 0; n < N; ++n) prefetch_l2(next[n] + (d - wrap));
      project_step<Row, M, N, false>(acc, hidden, hidden_stride, w, d, step);
    }
  } else {
    for (; d + step <= width; d += step) {
      LMHEAD_UNROLL
      for (int n = 0; n < A; ++n) prefetch_l2(next[n] + d);
      project_step<Row, M, N, false>(acc, hidden, hidden_stride, w, d, step);
    }
  }
  if (d < width) project_step<Row, M, N, true>(acc, hidden, hidden_stride, w, d, width - d);
  reduce_tile<Row, M, N>(acc, out, out_stride);
}

// G groups of N ids against all hidden rows [row0, row1): full tiles, then one tile of what is left. The next G * N weight rows
// are fetched meanwhile, A rows of a group by each tile, so that memory is busy all the time and never has to be waited for.
template <class Row, int N, int A, int G = 1>
inline void project_ids(const ProjectTile& t, int64_t row0, int64_t row1, int64_t id) {
  using Hidden = typename Row::Hidden;
  const ptrdiff_t stride = t.hidden_stride / static_cast<ptrdiff_t>(sizeof(Hidden));
  const Hidden* hidden = static_cast<const Hidden*>(t.hidden);
  typename Row::T* out = static_cast<typename Row::T*>(t.out) + id;
  const void* const* rows = t.weight_rows + id;
  const void* const* ahead = rows + G * N;
  int left = id + 2 * G * N <= t.n_ids + t.n_ahead ? N : 0;  // rows of each group still to be fetched
  int64_t r = row0;
  const auto tiles = [&](auto rows_in_tile) {
    constexpr int M = decltype(rows_in_tile)::value;
    for (int g = 0; g < G * N; g += N) {
      const auto run = A != 0 && left > 0 ? project_tile<Row, M, N, A> : project_tile<Row, M, N, 0>;
      run(hidden + r * stride, stride, rows + g, ahead + g, t.width, out + r * t.out_stride + g, t.out_stride);
    }
    ahead += A;
    left = A == kNear ? 0 : left - A;
    r += M;
  };
  while (r + kTileRows <= row1) tiles(Constant<kTileRows>{});
  if constexpr (kTileRows > 3) { if (row1 - r == 3) tiles(Constant<3>{}); }
  if constexpr (kTileRows > 2) { if (row1 - r == 2) tiles(Constant<2>{}); }
  if constexpr (kTileRows > 1) { if (row1 - r == 1) tiles(Constant<1>{}); }
}

// All of N rows are fetched by one tile where there is only one, by two or three tiles, or one row each.
template <class Row, int N, int G = 1>
inline void project_ids_fetching(const ProjectTile& t, int64_t row0, int64_t row1, int64_t id) {
  const int64_t tiles = (row1 - row0 + kTileRows - 1) / kTileRows;
  if (tiles == 1) return project_ids<Row, N, N, G>(t, row0, row1, id);
  if constexpr (N % 2 == 0 && N > 2) { if (tiles == 2) return project_ids<Row, N, N / 2, G>(t, row0, row1, id); }
  if constexpr (N % 3 == 0 && N > 3) { if (tiles < N) return project_ids<Row, N, N / 3, G>(t, row0, row1, id); }
  project_ids<Row, N, 1, G>(t, row0, row1, id);
}

// Hidden rows that stay in L2 (1 MiB on Zen 4, shared with the weight rows) while the weight rows of a call pass.
constexpr ptrdiff_t kHiddenBytesInCache = 512 * 1024;
// A single hidden row that stays in L1 (32 KiB) beside one stream of weights; a longer one is worth sharing between the
// rows of a tile.
constexpr ptrdiff_t kHiddenBytesNear = 12 * 1024;

template <class Row>
void project(const ProjectTile& t) {
  const int64_t fit = kHiddenBytesInCache / (t.hidden_stride > 0 ? t.hidden_stride : 1) / kTileRows * kTileRows;
  const int64_t rows_in_cache = fit > kTileRows ? fit : kTileRows;
  for (int64_t row0 = 0; row0 < t.n_rows; row0 += rows_in_cache) {
    const int64_t row1 = row0 + rows_in_cache < t.n_rows ? row0 + rows_in_cache : t.n_rows;
    int64_t id = 0;
    if (row1 - row0 == 1) {
      if (t.hidden_stride <= kHiddenBytesNear && !t.scattered)
        for (; id < t.n_ids; ++id) project_ids<Row, 1, kNear>(t, row0, row1, id);
      for (; id + kTileIdsOneRow <= t.n_ids; id += kTileIdsOneRow) project_ids_fetching<Row, kTileIdsOneRow>(t, row0, row1, id);
    }
    for (; id + kTileGroups * kTileIds <= t.n_ids; id += kTileGroups * kTileIds)
      project_ids_fetching<Row, kTileIds, kTileGroups>(t, row0, row1, id);
    if constexpr (kTileGroups > 1)
      for (; id + kTileIds <= t.n_ids; id += kTileIds) project_ids<Row, kTileIds, 0>(t, row0, row1, id);
    if constexpr (kTileIds > 2)
      for (; id + 2 <= t.n_ids; id += 2) project_ids<Row, 2, 0>(t, row0, row1, id);
    for (; id < t.n_ids; ++id) project_ids<Row, 1, 0>(t, row0, row1, id);
  }
}

}  // namespace
}  // namespace lmhead
