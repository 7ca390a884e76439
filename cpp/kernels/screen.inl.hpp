// The certified screen's leaf loops: estimates of logits from signed bytes, and the bytes of a row of weights.
// Integer sums are exact, so any order of chunks gives the same.
// It knows chunks and ends; it refuses to know what makes a bound valid (core/screen_bound.hpp does).
#pragma once

#include "kernels/table.hpp"  // after a vocabulary
#include "simd/lanes.hpp"

namespace lmhead {
namespace {

constexpr ptrdiff_t kChunkBytes = 4 * kScreenBlock;
constexpr ptrdiff_t kScreenWordBytes = 4 * kScreenPartBytes;
// The plane is one stream from the first chunk to the last; it is fetched so far ahead.
constexpr ptrdiff_t kScreenAheadBytes = 4096;

template <int N>
void scan_block(const ScreenScan& s, int64_t block, int64_t first_row) {
  constexpr int copies = 2 * N < kScreenChains ? kScreenChains / (2 * N) : 1;
  ScreenSums high[copies][N], low[copies][N];
  LMHEAD_UNROLL
  for (int u = 0; u < copies; ++u)
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) high[u][n] = low[u][n] = screen_zero();
  const uint8_t* at = s.plane + block * s.n_chunks * kChunkBytes;
  const char* words = static_cast<const char*>(s.words) + first_row * 2 * kScreenWordBytes;
  const ptrdiff_t words_stride = s.n_rows * 2 * kScreenWordBytes;
  const auto step = [&](int u) __attribute__((always_inline)) {
    prefetch_l2(at + kScreenAheadBytes);
    const ScreenChunk chunk = load_chunk(at);
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) {
      add_products(high[u][n], chunk, words + 2 * n * kScreenWordBytes);
      add_products(low[u][n], chunk, words + (2 * n + 1) * kScreenWordBytes);
    }
    at += kChunkBytes;
    words += words_stride;
  };
  int64_t c = 0;
  for (; c + copies <= s.n_chunks; c += copies) {
    LMHEAD_UNROLL
    for (int u = 0; u < copies; ++u) step(u);
  }
  if constexpr (copies > 1)
    for (; c < s.n_chunks; ++c) step(0);
  LMHEAD_UNROLL
  for (int u = 1; u < copies; ++u)
    LMHEAD_UNROLL
    for (int n = 0; n < N; ++n) {
      add_sums(high[0][n], high[u][n]);
      add_sums(low[0][n], low[u][n]);
    }
  LMHEAD_UNROLL
  for (int n = 0; n < N; ++n) {
    const ScreenRow& row = s.rows[first_row + n];
    LMHEAD_UNROLL
    for (int p = 0; p < kParts<float>; ++p) {
      const int64_t id = block * kScreenBlock + p * kLanes<float>;
      const VF sum = mul_add(screen_part(high[0][n], p, row.start_high), broadcast(256.0f), screen_part(low[0][n], p, row.start_low));
      const VF estimate = mul(mul(sum, broadcast(row.step)), load(s.scales + id));
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
  VF greatest = broadcast(0.0f);
  auto infinite = not_less_equal(greatest, greatest);
  for (int64_t i = 0; i < n; i += lanes) {
    const VF x = abs(i + lanes <= n ? load(row + i) : load_first(row + i, n - i, 0.0f));
    infinite = either(infinite, not_less_equal(x, broadcast(3.40282347e38f)));
    greatest = max(x, greatest);
  }
  return mask_bits(infinite) ? __builtin_nanf("") : reduce_max(greatest);
}

inline QuantisedRow quantise_row(const float* row, int64_t n, float scale, uint8_t* out) {
  // Adding 1.5 * 2^23 rounds to an integer, ties to even; with 128 more its low byte is q + 128.
  const VF magic = broadcast(12582912.0f + 128.0f), inverse = broadcast(1.0f / scale), step = broadcast(-scale);
  VF error[kParts<float>], norm[kParts<float>];
  for (int p = 0; p < kParts<float>; ++p) error[p] = norm[p] = broadcast(0.0f);
  const auto group = [&](int64_t i, auto whole) {
    LMHEAD_UNROLL
    for (int p = 0; p < kParts<float>; ++p) {
      const int64_t at = i + p * kLanes<float>;
      const VF w = decltype(whole)::value ? load(row + at) : load_first(row + at, n - at, 0.0f);
      const VF scaled = max(broadcast(-127.0f), min(broadcast(127.0f), mul(w, inverse)));
      const VF sum = add(scaled, magic), q = sub(sum, magic);
      store_low_bytes(out + at, sum);
      const VF rest = mul(mul_add(step, q, w), inverse);
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
