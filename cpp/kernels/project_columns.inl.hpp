// The projection of one hidden row on a weight stored as (D, V): lanes run along the ids, and each id has one accumulator
// for each canonical lane. The same products reach the same accumulators in the same order and are reduced by the same
// tree as in project.inl.hpp, so the logits have the same bits.
// It knows column storage; it refuses to know tiles of rows, for which weights are packed instead.
#pragma once

#include "kernels/rows.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

// Steps of the width taken together: an accumulator is loaded and stored once for so many FMAs.
// Eight is even, as the two halves of a bfloat16 step need.
constexpr int kStepsTogether = 8;

template <class Row>
struct ColumnPass {
  using T = typename Row::T;
  using Stored = typename Row::Stored;
  static constexpr int canonical = kCanonical<T>;
  static constexpr int lanes = kLanes<T>;

  const ProjectColumns& c;
  const T* hidden;
  T* sums;  // [canonical][n_ids]

  // The element of the width that step t gives to a lane; prepared hidden rows hold it at t * canonical + lane.
  static ptrdiff_t element(ptrdiff_t t, int lane) {
    return Row::kHalves == 2 ? t / 2 * Row::kStep + 2 * lane + 1 - t % 2 : t * canonical + lane;
  }
  const Stored* weights(ptrdiff_t d) const { return reinterpret_cast<const Stored*>(c.weight + d * c.width_stride); }

  // `next` is read soon: the same ids of the rows that the next lane takes.
  template <int steps>
  void add_rows(int lane, const Stored* const* w, const T* h, const Stored* const* next) const {
    T* into = sums + lane * c.n_ids;
    Vector<T> factor[steps];
    LMHEAD_UNROLL
    for (int s = 0; s < steps; ++s) factor[s] = broadcast(h[s * canonical]);
    ptrdiff_t i = 0;
    for (; i + canonical <= c.n_ids; i += canonical) {
      LMHEAD_UNROLL
      for (int s = 0; s < steps; ++s) prefetch_l2(next[s] + i);
      LMHEAD_UNROLL
      for (int p = 0; p < kParts<T>; ++p) {
        const ptrdiff_t at = i + p * lanes;
        Vector<T> sum = load(into + at);
        LMHEAD_UNROLL
        for (int s = 0; s < steps; ++s) sum = mul_add(factor[s], Row::load_columns(w[s] + at), sum);
        store(into + at, sum);
      }
    }
    for (; i < c.n_ids; i += lanes) {
      const ptrdiff_t left = c.n_ids - i;
      Vector<T> sum = load_first(into + i, left, T(0));
      for (int s = 0; s < steps; ++s) sum = mul_add(factor[s], Row::load_columns_tail(w[s] + i, left), sum);
      store_first(into + i, left, sum);
    }
  }

  // Lanes past the end of the width take 0 * 0, as the zero padding does there: a -0, which only underflow can leave, becomes +0.
  void add_nothing(int lane) const {
    for (ptrdiff_t i = 0; i < c.n_ids; ++i) sums[lane * c.n_ids + i] = sums[lane * c.n_ids + i] + T(0);
  }

  void add_all() const {
    const ptrdiff_t steps = (c.width + Row::kStep - 1) / Row::kStep * Row::kHalves;
    ptrdiff_t t = 0;
    for (; (t + kStepsTogether) / Row::kHalves * Row::kStep <= c.width; t += kStepsTogether)  // whole steps only
      for (int lane = 0; lane < canonical; ++lane) {
        const Stored *w[kStepsTogether], *next[kStepsTogether];
        for (int s = 0; s < kStepsTogether; ++s) {
          w[s] = weights(element(t + s, lane));
          const ptrdiff_t d = lane + 1 < canonical ? element(t + s, lane + 1) : element(t + kStepsTogether + s, 0);
          next[s] = weights(d < c.width ? d : c.width - 1);
        }
        add_rows<kStepsTogether>(lane, w, hidden + t * canonical + lane, next);
      }
    for (; t < steps; ++t)
      for (int lane = 0; lane < canonical; ++lane) {
        const ptrdiff_t d = element(t, lane);
        if (d >= c.width) {
          add_nothing(lane);
          continue;
        }
        const Stored* w = weights(d);
        add_rows<1>(lane, &w, hidden + t * canonical + lane, &w);
      }
  }

  void reduce(T* out) const {
    for (int apart = canonical / 2; apart > 1; apart /= 2)
      for (int lane = 0; lane < apart; ++lane)
        for (ptrdiff_t i = 0; i < c.n_ids; ++i) sums[lane * c.n_ids + i] = sums[lane * c.n_ids + i] + sums[(lane + apart) * c.n_ids + i];
    for (ptrdiff_t i = 0; i < c.n_ids; ++i) out[i] = sums[i] + sums[c.n_ids + i];
  }
};

template <class Row>
void project_columns(const ProjectColumns& c) {
  using T = typename Row::T;
  T* sums = static_cast<T*>(c.sums);
  for (ptrdiff_t i = 0; i < kCanonical<T> * c.n_ids; ++i) sums[i] = T(0);
  const ColumnPass<Row> pass{c, static_cast<const T*>(c.hidden), sums};
  pass.add_all();
  pass.reduce(static_cast<T*>(c.out));
}

}  // namespace
}  // namespace lmhead
