// The projection of one hidden row on a weight stored as (D, V): lanes run along the ids, and each id has one accumulator
// for each canonical lane. The same products reach the same accumulators in the same order and are reduced by the same
// tree as in project.inl.hpp, so the logits have the same bits.
// It knows column storage; it refuses to know tiles of rows, for which weights are packed instead.
#pragma once

#include "kernels/rows.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

// How many d ahead the weight is fetched: 8 rows of 1 KiB are about the latency of memory at the speed of one core.
constexpr ptrdiff_t kColumnsAhead = 8;

template <class Row>
void project_columns(const ProjectColumns& c) {
  using T = typename Row::T;
  using Stored = typename Row::Stored;
  constexpr int canonical = kCanonical<T>;
  constexpr int lanes = kLanes<T>;
  const T* hidden = static_cast<const T*>(c.hidden);
  T* sums = static_cast<T*>(c.sums);
  const ptrdiff_t n = c.n_ids;
  for (ptrdiff_t i = 0; i < canonical * n; ++i) sums[i] = T(0);

  const auto add_row = [&](int lane, T h, ptrdiff_t d) {
    const Stored* w = reinterpret_cast<const Stored*>(c.weight + d * c.width_stride);
    const char* next = c.weight + (d + kColumnsAhead) * c.width_stride;
    const bool fetch = d + kColumnsAhead < c.width;
    T* into = sums + lane * n;
    const Vector<T> factor = broadcast(h);
    ptrdiff_t i = 0;
    for (; i + canonical <= n; i += canonical) {
      if (fetch) prefetch_l2(next + i * static_cast<ptrdiff_t>(sizeof(Stored)));
      for (int p = 0; p < kParts<T>; ++p) {
        T* at = into + i + p * lanes;
        store(at, mul_add(factor, Row::load_columns(w + i + p * lanes), load(at)));
      }
    }
    for (; i < n; i += lanes) {
      const ptrdiff_t left = n - i;
      store_first(into + i, left, mul_add(factor, Row::load_columns_tail(w + i, left), load_first(into + i, left, T(0))));
    }
  };
  // Lanes past the end of the width take 0 * 0, as the zero padding does there: -0 becomes +0 (it can only come from underflow).
  const auto add_nothing = [&](int lane) {
    for (ptrdiff_t i = 0; i < n; ++i) sums[lane * n + i] = sums[lane * n + i] + T(0);
  };
  for (ptrdiff_t d = 0; d < c.width; d += Row::kStep)
    for (int half = 0; half < Row::kHalves; ++half)
      for (int lane = 0; lane < canonical; ++lane) {
        const ptrdiff_t at = d + (Row::kHalves == 2 ? 2 * lane + 1 - half : lane);
        if (at < c.width) add_row(lane, hidden[d + half * canonical + lane], at);
        else add_nothing(lane);
      }

  T* out = static_cast<T*>(c.out);
  for (int apart = canonical / 2; apart > 1; apart /= 2)
    for (int lane = 0; lane < apart; ++lane)
      for (ptrdiff_t i = 0; i < n; ++i) sums[lane * n + i] = sums[lane * n + i] + sums[(lane + apart) * n + i];
  for (ptrdiff_t i = 0; i < n; ++i) out[i] = sums[i] + sums[n + i];
}

}  // namespace
}  // namespace lmhead
