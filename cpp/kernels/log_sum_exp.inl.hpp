// Log-sum-exp of a block of logits, and of blocks to a row, as (max, rest): rest leaves out the maximum's own 1, so a loss of
// 8.8e-27 is not rounded to 0 and the sum never has to be told from 1.
// It knows blocks and rows of plain numbers; it refuses to know where logits come from.
#pragma once

#include "kernels/exp.inl.hpp"
#include "kernels/select.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

// Below this sum the maximum's 1 is most of it, and subtracting 1 would lose digits: 1.25 keeps all but two bits.
template <class T> constexpr T kSafeSum = T(1.25);

// How far ahead of its maximum a block is fetched to L2: eight blocks of float32. 4 KiB is 8 % slower, 2 KiB 40 %, 16 KiB no faster.
constexpr ptrdiff_t kFetchBytes = 8192;

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
    store(exps + k, exp_below_one<T>(below_max<T, true>(load(exps + k), max, inverse_temperature)));
  }
  T sum = T(0);
  for (int64_t k = 0; k < most; ++k)
    if (k != first / canonical) sum = sum + exps[k];
  return sum;
}

template <class T>
inline T rest_without_first_max(const T* z, int64_t n, T max, T inverse_temperature, const Vector<T>* sums) {
  const int64_t first = find_first(z, n, max);
  T lanes[kCanonical<T>];
  for (int p = 0; p < kParts<T>; ++p) store(lanes + p * kLanes<T>, sums[p]);
  lanes[first % kCanonical<T>] = lane_without_first_max(z, n, max, inverse_temperature, first);
  Vector<T> parts[kParts<T>];
  for (int p = 0; p < kParts<T>; ++p) parts[p] = load(lanes + p * kLanes<T>);
  return reduce_parts<T>(parts);
}

// The maximum of what is not NaN, or NaN: `maxps` keeps either, so NaN shows for certain only in the sum.
template <class T>
struct RunningMax {
  Vector<T> best[2] = {broadcast(-kInfinity<T>), broadcast(-kInfinity<T>)};

  // Elements [i, i + 2 * lanes) of a block, whose later neighbour is fetched.
  void take(const T* z, int64_t i) {
    constexpr int lanes = kLanes<T>;
    best[0] = max(load(z + i), best[0]);
    best[1] = max(load(z + i + lanes), best[1]);
    if (2 * lanes * sizeof(T) >= 64 || i % (64 / sizeof(T)) == 0)
      for (size_t byte = 0; byte < 2 * lanes * sizeof(T); byte += 64)
        prefetch_l2(reinterpret_cast<const char*>(z + i) + kFetchBytes + byte);
  }
  T value() const { return reduce_max(max(best[0], best[1])); }
};

template <class T>
inline T block_max(const T* z, int64_t n) {
  constexpr int lanes = kLanes<T>;
  RunningMax<T> running;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) running.take(z, i);
  for (; i < n; i += lanes) running.best[0] = max(load_first(z + i, n - i, -kInfinity<T>), running.best[0]);
  return running.value();
}

template <class T>
inline bool has_nan(const T* z, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (z[i] != z[i]) return true;
  return false;
}

// `next` is a whole block that follows a whole block, or null: its maximum is taken meanwhile, for the multipliers have
// nothing to do while data come from L2, and L2 has nothing to do while they work.
template <class T, bool scaled, bool keep>
inline T block_rest(const T* z, int64_t n, T max, T inverse_temperature, T* exps, const T* next, RunningMax<T>& next_max) {
  constexpr int lanes = kLanes<T>, canonical = kCanonical<T>;
  Vector<T> sums[kParts<T>];
  for (int p = 0; p < kParts<T>; ++p) sums[p] = broadcast(T(0));
  const auto exp_of = [&](Vector<T> x) { return exp_below_one<T>(below_max<T, scaled>(x, max, inverse_temperature)); };
  const auto take = [&](int64_t i) {
    for (int p = 0; p < kParts<T>; ++p) {
      const Vector<T> e = exp_of(load(z + i + p * lanes));
      if (keep) store(exps + i + p * lanes, e);
      sums[p] = add(sums[p], e);
    }
  };
  int64_t i = 0;
  if (next) {
    constexpr int step = 2 * lanes > canonical ? 2 * lanes : canonical;
    for (; i < kBlockIds; i += step) {
      for (int64_t at = i; at < i + step; at += 2 * lanes) next_max.take(next, at);
      for (int64_t at = i; at < i + step; at += canonical) take(at);
    }
  }
  for (; i + canonical <= n; i += canonical) take(i);
  if (i < n)
    for (int p = 0; p < kParts<T>; ++p) {
      const int64_t left = n - i - p * lanes;
      const Vector<T> e = exp_of(load_first(z + i + p * lanes, left, -kInfinity<T>));
      if (keep) store_first(exps + i + p * lanes, left, e);
      sums[p] = add(sums[p], e);
    }
  const T sum = reduce_parts<T>(sums);
  if (sum >= kSafeSum<T>) return sum - T(1);
  if (sum != sum) return kNaN<T>;
  return rest_without_first_max(z, n, max, inverse_temperature, sums);
}

template <class T>
inline LogSum<T> sum_below(T max, const T* z, int64_t n, T inverse_temperature, T* exps, const T* next, RunningMax<T>& next_max) {
  if (max == kInfinity<T> || max == -kInfinity<T>) {
    if (exps)
      for (int64_t i = 0; i < n; ++i) exps[i] = T(0);
    if (next)
      for (int64_t i = 0; i < kBlockIds; i += 2 * kLanes<T>) next_max.take(next, i);
    return {has_nan(z, n) ? kNaN<T> : max, T(0)};
  }
  const bool scaled = inverse_temperature != T(1);
  const T rest = exps ? (scaled ? block_rest<T, true, true>(z, n, max, inverse_temperature, exps, next, next_max)
                                : block_rest<T, false, true>(z, n, max, inverse_temperature, exps, next, next_max))
                      : (scaled ? block_rest<T, true, false>(z, n, max, inverse_temperature, exps, next, next_max)
                                : block_rest<T, false, false>(z, n, max, inverse_temperature, exps, next, next_max));
  if (rest != rest) return {kNaN<T>, T(0)};
  return {max, rest};
}

template <class T>
void block_sums(const T* z, int64_t n, T inverse_temperature, T* exps, const BlockSums<T>& sums) {
  const auto length = [&](int64_t first) { return n - first < kBlockIds ? n - first : kBlockIds; };
  if (n <= 0) return;
  T max = block_max(z, length(0));
  for (int64_t first = 0; first < n; first += kBlockIds) {
    const int64_t next = first + kBlockIds;
    const bool whole = next + kBlockIds <= n;
    RunningMax<T> next_max;
    const LogSum<T> sum = sum_below(max, z + first, length(first), inverse_temperature, exps ? exps + first : nullptr,
                                    whole ? z + next : nullptr, next_max);
    sums.maxima[first / kBlockIds] = sum.max;
    sums.rests[first / kBlockIds] = sum.rest;
    max = whole ? next_max.value() : next < n ? block_max(z + next, length(next)) : T(0);
  }
}

// The first block with the greatest maximum gives its rest, every other one (1 + rest) exp(its max - the max).
template <class T>
LogSum<T> merge_sums(const BlockSums<T>& blocks, int64_t n_blocks, T inverse_temperature, T* factors) {
  constexpr int lanes = kLanes<T>, canonical = kCanonical<T>;
  Vector<T> best = broadcast(-kInfinity<T>);
  uint32_t nan_bits = 0;
  for (int64_t b = 0; b < n_blocks; b += lanes) {
    const Vector<T> x = load_first(blocks.maxima + b, n_blocks - b, -kInfinity<T>);
    nan_bits |= mask_bits(not_less_equal(x, x));
    best = max(x, best);
  }
  const T top = reduce_max(best);
  if (nan_bits) return {kNaN<T>, T(0)};
  if (top == kInfinity<T> || top == -kInfinity<T>) return {top, T(0)};
  const int64_t first = find_first(blocks.maxima, n_blocks, top);
  // Sums over thousands of blocks in float64: a product of two float32 is exact there.
  double sums[canonical] = {};
  for (int64_t b = 0; b < n_blocks; b += canonical)
    for (int p = 0; p < kParts<T>; ++p) {
      T weights[lanes], exps[lanes];
      const int64_t at = b + p * lanes, left = n_blocks - at;
      const Vector<T> e = exp_below_one<T>(below_max<T, true>(load_first(blocks.maxima + at, left, -kInfinity<T>), top, inverse_temperature));
      if (factors) store_first(factors + at, left, e);
      store(exps, e);
      store(weights, add(load_first(blocks.rests + at, left, T(0)), broadcast(T(1))));
      if (first >= at && first < at + lanes) weights[first - at] = blocks.rests[first];
      for (int j = 0; j < lanes; ++j) sums[p * lanes + j] += double(weights[j]) * double(exps[j]);
    }
  for (int apart = canonical / 2; apart > 0; apart /= 2)
    for (int j = 0; j < apart; ++j) sums[j] += sums[j + apart];
  return {top, static_cast<T>(sums[0])};
}

}  // namespace
}  // namespace lmhead
