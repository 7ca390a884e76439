// Log-sum-exp of a block of logits, and of blocks to a row, as (max, rest): rest leaves out the maximum's own 1, so a loss of
// 8.8e-27 is not rounded to 0 and the sum never has to be told from 1.
// It knows blocks and rows of plain numbers; it refuses to know where logits come from.
#pragma once

#include "kernels/exp.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

// Below this sum the maximum's 1 is most of it, and subtracting 1 would lose digits: 1.5 keeps all but 1.6 bits.
template <class T> constexpr T kSafeSum = T(1.5);

// The first maximum's lane once more, in order, without that element.
template <class T>
inline T lane_without_first_max(const T* z, int64_t n, T max, T inverse_temperature, int64_t first) {
  constexpr int canonical = kCanonical<T>;
  constexpr int64_t most = kBlockIds / canonical;
  T exps[most];
  for (int64_t k = 0; k < most; ++k) {
    const int64_t i = first % canonical + k * canonical;
    exps[k] = i < n ? z[i] : -kInfinity<T>;
  }
  for (int64_t k = 0; k < most; k += kLanes<T>) {
    const Vector<T> x = mul(sub(load(exps + k), broadcast(max)), broadcast(inverse_temperature));
    store(exps + k, exp_below_one<T>(x));
  }
  T sum = T(0);
  for (int64_t k = 0; k < most; ++k)
    if (k != first / canonical) sum = sum + exps[k];
  return sum;
}

template <class T>
inline T rest_without_first_max(const T* z, int64_t n, T max, T inverse_temperature, const Vector<T>* sums) {
  int64_t first = 0;
  while (z[first] != max) ++first;
  T lanes[kCanonical<T>];
  for (int p = 0; p < kParts<T>; ++p) store(lanes + p * kLanes<T>, sums[p]);
  lanes[first % kCanonical<T>] = lane_without_first_max(z, n, max, inverse_temperature, first);
  Vector<T> parts[kParts<T>];
  for (int p = 0; p < kParts<T>; ++p) parts[p] = load(lanes + p * kLanes<T>);
  return reduce_parts<T>(parts);
}

template <class T>
struct BlockMax {
  T max;
  bool has_nan;
};

template <class T>
inline BlockMax<T> block_max(const T* z, int64_t n) {
  constexpr int lanes = kLanes<T>;
  const Vector<T> lowest = broadcast(-kInfinity<T>);
  Vector<T> best[2] = {lowest, lowest};
  auto bad = unordered(lowest, lowest);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const Vector<T> a = load(z + i), b = load(z + i + lanes);
    best[0] = max(best[0], a);
    best[1] = max(best[1], b);
    bad = either(bad, unordered(a, b));
  }
  for (; i < n; i += lanes) {
    const Vector<T> a = load_first(z + i, n - i, -kInfinity<T>);
    best[0] = max(best[0], a);
    bad = either(bad, unordered(a, a));
  }
  return {reduce_max(max(best[0], best[1])), mask_bits(bad) != 0};
}

template <class T, bool scaled, bool keep>
inline T block_rest(const T* z, int64_t n, T max, T inverse_temperature, T* exps) {
  constexpr int lanes = kLanes<T>, canonical = kCanonical<T>;
  Vector<T> sums[kParts<T>];
  for (int p = 0; p < kParts<T>; ++p) sums[p] = broadcast(T(0));
  const auto exp_of = [&](Vector<T> x) {
    x = sub(x, broadcast(max));
    if (scaled) x = mul(x, broadcast(inverse_temperature));
    return exp_below_one<T>(x);
  };
  int64_t i = 0;
  for (; i + canonical <= n; i += canonical)
    for (int p = 0; p < kParts<T>; ++p) {
      const Vector<T> e = exp_of(load(z + i + p * lanes));
      if (keep) store(exps + i + p * lanes, e);
      sums[p] = add(sums[p], e);
    }
  if (i < n)
    for (int p = 0; p < kParts<T>; ++p) {
      const int64_t left = n - i - p * lanes;
      const Vector<T> e = exp_of(load_first(z + i + p * lanes, left, -kInfinity<T>));
      if (keep) store_first(exps + i + p * lanes, left, e);
      sums[p] = add(sums[p], e);
    }
  const T sum = reduce_parts<T>(sums);
  if (sum >= kSafeSum<T>) return sum - T(1);
  return rest_without_first_max(z, n, max, inverse_temperature, sums);
}

template <class T>
BlockSum<T> block_sum(const T* z, int64_t n, T inverse_temperature, T* exps) {
  const BlockMax<T> top = block_max(z, n);
  if (top.has_nan) return {kNaN<T>, T(0)};
  if (top.max == kInfinity<T> || top.max == -kInfinity<T>) {
    if (exps)
      for (int64_t i = 0; i < n; ++i) exps[i] = T(0);
    return {top.max, T(0)};
  }
  const bool scaled = inverse_temperature != T(1);
  const T rest = exps ? (scaled ? block_rest<T, true, true>(z, n, top.max, inverse_temperature, exps)
                                : block_rest<T, false, true>(z, n, top.max, inverse_temperature, exps))
                      : (scaled ? block_rest<T, true, false>(z, n, top.max, inverse_temperature, exps)
                                : block_rest<T, false, false>(z, n, top.max, inverse_temperature, exps));
  return {top.max, rest};
}

// The first block with the greatest maximum gives its rest, every other one (1 + rest) exp(its max - the max).
template <class T>
BlockSum<T> merge_sums(const BlockSum<T>* blocks, int64_t n_blocks, T inverse_temperature, T* factors) {
  constexpr int lanes = kLanes<T>, canonical = kCanonical<T>;
  T top = -kInfinity<T>;
  int64_t first = 0;
  bool has_nan = false;
  for (int64_t b = 0; b < n_blocks; ++b) {
    has_nan |= blocks[b].max != blocks[b].max;
    if (blocks[b].max > top) { top = blocks[b].max; first = b; }
  }
  if (has_nan) return {kNaN<T>, T(0)};
  if (top == kInfinity<T> || top == -kInfinity<T>) return {top, T(0)};
  Vector<T> sums[kParts<T>];
  for (int p = 0; p < kParts<T>; ++p) sums[p] = broadcast(T(0));
  for (int64_t b = 0; b < n_blocks; b += canonical)
    for (int p = 0; p < kParts<T>; ++p) {
      T maxima[lanes], weights[lanes];
      const int64_t at = b + p * lanes;
      for (int j = 0; j < lanes; ++j) {
        const bool there = at + j < n_blocks;
        maxima[j] = there ? blocks[at + j].max : -kInfinity<T>;
        weights[j] = there ? (at + j == first ? blocks[at + j].rest : T(1) + blocks[at + j].rest) : T(0);
      }
      const Vector<T> x = mul(sub(load(maxima), broadcast(top)), broadcast(inverse_temperature));
      const Vector<T> e = exp_below_one<T>(x);
      if (factors) store_first(factors + at, n_blocks - at, e);
      sums[p] = add(sums[p], mul(load(weights), e));
    }
  return {top, reduce_parts<T>(sums)};
}

}  // namespace
}  // namespace lmhead
