// The certified screen's leaf loops: estimates of logits from signed bytes, and the bytes of a row of weights.
// Integer sums are exact, so any order of chunks gives the same.
// It knows chunks and ends; it refuses to know what makes a bound valid (core/screen_bound.hpp does).
#pragma once

#include "kernels/table.hpp"  // after a vocabulary
#include "simd/lanes.hpp"

namespace lmhead {
namespace {

constexpr ptrdiff_t kChunkBytes = 4 * kScreenBlock;
constexpr ptrdiff_t kScreenWordBytes = 8;  // 4 numbers, or 4 high and 4 low parts
constexpr int kCorrectionsPerSegment = kScreenPartBytes == 1 ? 2 : 1;
// The plane is one stream from the first chunk to the last, which the processor fetches by itself up to the end of a page: the start of
// the next is asked for a page ahead. To ask for every line takes the few places where a core waits for memory from its loads: of what
// two cores read (60 GB/s) that leaves 0.72 on AVX2 where page starts leave 0.95. Where products are of bytes the loop is short enough to
// have many loads under way, and asking for every line gives 1.00 against 0.95.
constexpr ptrdiff_t kPageBytes = 4096;
constexpr bool kFetchEveryLine = kScreenPartBytes == 1;
__attribute__((always_inline)) inline void fetch_next_page(const uint8_t* line) {
  const bool starts_page = reinterpret_cast<uintptr_t>(line) % kPageBytes == 0;
  if (kFetchEveryLine || starts_page) prefetch_l2(line + kPageBytes);
  if (!kFetchEveryLine && starts_page) prefetch_l2(line + kPageBytes + 64);
}

template <int N>
void scan_block(const ScreenScan& s, int64_t block, int64_t first_row) {
  constexpr int copies = N < kScreenChains ? kScreenChains / N : 1;
  alignas(64) int64_t totals[N][kScreenBlock] = {};
  const uint8_t* at = s.plane + block * s.n_chunks * kChunkBytes;
  const char* words = static_cast<const char*>(s.words) + first_row * kScreenWordBytes;
  const ptrdiff_t words_stride = s.n_rows * kScreenWordBytes;
  const int32_t* corrections = s.corrections + first_row * s.n_corrections;
  for (int64_t first = 0; first < s.n_chunks; first += kScreenSegment, corrections += kCorrectionsPerSegment) {
    const int64_t end = first + kScreenSegment < s.n_chunks ? first + kScreenSegment : s.n_chunks;
    ScreenSums sums[copies][N];
    LMHEAD_UNROLL
    for (int u = 0; u < copies; ++u)
      LMHEAD_UNROLL
      for (int n = 0; n < N; ++n) sums[u][n] = screen_zero();
    const auto step = [&](int u) __attribute__((always_inline)) {
      fetch_next_page(at);
      const ScreenChunk chunk = load_chunk(at);
      LMHEAD_UNROLL
      for (int n = 0; n < N; ++n) add_products(sums[u][n], chunk, words + n * kScreenWordBytes);
      at += kChunkBytes;
      words += words_stride;
    };
    int64_t c = first;
    for (; c + copies <= end; c += copies) {
      LMHEAD_UNROLL
      for (int u = 0; u < copies; ++u) step(u);
    }
    if constexpr (copies > 1)
      for (; c < end; ++c) step(0);
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) {
      LMHEAD_UNROLL
      for (int u = 1; u < copies; ++u) add_sums(sums[0][n], sums[u][n]);
      add_to_totals(sums[0][n], corrections + n * s.n_corrections, totals[n]);
    }
  }
  LMHEAD_UNROLL
  for (int n = 0; n < N; ++n) {
    const ScreenRow& row = s.rows[first_row + n];
    LMHEAD_UNROLL
    for (int p = 0; p < kParts<float>; ++p) {
      const int64_t id = block * kScreenBlock + p * kLanes<float>;
      const VF estimate = mul(mul(load_i64(totals[n] + p * kLanes<float>), broadcast(row.step)), load(s.scales + id));
      const VF by_norm = mul_add(load(s.norms + id), broadcast(row.by_norm), broadcast(row.constant));
      const VF width = mul_add(load(s.errors + id), broadcast(row.by_error), by_norm);
      store(s.estimates + (first_row + n) * s.stride + id, estimate);
      store(s.ends + (first_row + n) * s.stride + id, add(estimate, width));
    }
  }
}

// Hidden rows [first_row, n_rows) against a block, as many at once as there are accumulators for.
template <int N>
inline void scan_rows(const ScreenScan& s, int64_t block, int64_t first_row) {
  for (; first_row + N <= s.n_rows; first_row += N) scan_block<N>(s, block, first_row);
  if constexpr (N > 1) scan_rows<N / 2>(s, block, first_row);
}

inline void scan_screen(const ScreenScan& s) {
  for (int64_t block = 0; block < s.n_blocks; ++block) scan_rows<kScreenRows>(s, block, 0);
}

inline float max_abs(const float* row, int64_t n) {
  constexpr int lanes = kLanes<float>;
  VF greatest[kParts<float>];
  for (int p = 0; p < kParts<float>; ++p) greatest[p] = broadcast(0.0f);
  int64_t i = 0;
  for (; i + kCanonical<float> <= n; i += kCanonical<float>)
    for (int p = 0; p < kParts<float>; ++p) greatest[p] = greater_magnitude(greatest[p], load(row + i + p * lanes));
  for (; i < n; i += lanes) greatest[0] = greater_magnitude(greatest[0], load_first(row + i, n - i, 0.0f));
  for (int p = 1; p < kParts<float>; ++p) greatest[0] = greater_magnitude(greatest[0], greatest[p]);
  float each[lanes];
  store(each, greatest[0]);
  bool finite = true;
  for (const float x : each) finite = finite && x <= 3.40282347e38f;
  return finite ? reduce_max(greatest[0]) : __builtin_nanf("");
}

// No clamp is needed: the greatest magnitude becomes 127 (1 + 3 * 2^-24) at most, which rounds to 127.
inline ScreenSquares screen_row(const float* row, int64_t n, float scale, uint8_t* out, const char* ahead, ptrdiff_t ahead_item) {
  // Adding 1.5 * 2^23 rounds to an integer, ties to even; with 128 more its low byte is q + 128.
  const VF magic = broadcast(12582912.0f + 128.0f), inverse = broadcast(1.0f / scale);
  VF error[kParts<float>], norm[kParts<float>];
  for (int p = 0; p < kParts<float>; ++p) error[p] = norm[p] = broadcast(0.0f);
  const auto group = [&](int64_t i, auto whole) {
    prefetch_l2(ahead + i * ahead_item);
    LMHEAD_UNROLL
    for (int p = 0; p < kParts<float>; ++p) {
      const int64_t at = i + p * kLanes<float>;
      const VF scaled = mul(decltype(whole)::value ? load(row + at) : load_first(row + at, n - at, 0.0f), inverse);
      const VF sum = add(scaled, magic), q = sub(sum, magic);
      store_low_bytes(out + at, sum);
      const VF rest = sub(scaled, q);  // exact: they are at most 1/2 apart
      error[p] = mul_add(rest, rest, error[p]);
      norm[p] = mul_add(q, q, norm[p]);
    }
  };
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) group(i, Constant<1>{});
  if (i < n) group(i, Constant<0>{});
  return {reduce_parts<float>(error), reduce_parts<float>(norm)};
}

}  // namespace
}  // namespace lmhead
