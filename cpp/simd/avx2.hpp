// The vocabulary on 256-bit registers (AVX2, FMA, F16C: every x86-64-v3 CPU).
// It knows instructions; it refuses to know any kernel. Each operation has the meaning simd/scalar.hpp gives it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "simd/unroll.hpp"
#include "simd/x86_transpose.hpp"

namespace lmhead {
namespace {

using VF = __m256;
using VD = __m256d;
using MF = __m256;
using MD = __m256d;

// An accumulator of 16 canonical lanes is two ymm: 3 x 2 x 2 = 12 accumulators + 2 weight vectors + 1 hidden vector = 15
// of 16 registers, and 5 loads for 6 FMAs in each half. More groups of ids on the same hidden rows (kTileGroups = 3) made no
// difference.
constexpr int kTileRows = 3, kTileIds = 2, kTileIdsOneRow = 4, kTileGroups = 1;

// The tile of a contraction: 6 rows x 2 vectors = 12 accumulators + 2 vectors + 1 coefficient = 15 of 16 registers.
constexpr int kContractRows = 6, kContractVectors = 2;

// Quantised rows: 2 x 2 x 2 = 8 accumulators + 2 scales + 2 hidden vectors + 1 weight vector = 13; beside one hidden row
// 4 x 2 + 4 + 1 + 1 = 14. A chain takes 16 elements in the latency of an FMA, 4 cycles, so a single row would wait for it and not
// for memory.
constexpr int kQuantizedRows = 2, kQuantizedIds = 2, kQuantizedIdsOneRow = 4;

// Lanes below n: all ones. A window into 8 ones followed by 8 zeros.
alignas(64) constexpr int32_t kWindow32[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
alignas(64) constexpr int64_t kWindow64[8] = {-1, -1, -1, -1, 0, 0, 0, 0};
inline __m256i low8(ptrdiff_t n) {
  const ptrdiff_t k = n > 8 ? 8 : n < 0 ? 0 : n;
  return _mm256_loadu_si256((const __m256i*)(kWindow32 + 8 - k));
}
inline __m256i low4(ptrdiff_t n) {
  const ptrdiff_t k = n > 4 ? 4 : n < 0 ? 0 : n;
  return _mm256_loadu_si256((const __m256i*)(kWindow64 + 4 - k));
}

inline VF load(const float* p) { return _mm256_loadu_ps(p); }
inline VD load(const double* p) { return _mm256_loadu_pd(p); }
inline VF load_first(const float* p, ptrdiff_t n, float fill) {
  const __m256i m = low8(n);
  return _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, m), _mm256_castsi256_ps(m));
}
inline VD load_first(const double* p, ptrdiff_t n, double fill) {
  const __m256i m = low4(n);
  return _mm256_blendv_pd(_mm256_set1_pd(fill), _mm256_maskload_pd(p, m), _mm256_castsi256_pd(m));
}
inline void store(float* p, VF x) { _mm256_storeu_ps(p, x); }
inline void store(double* p, VD x) { _mm256_storeu_pd(p, x); }
inline void store_first(float* p, ptrdiff_t n, VF x) { _mm256_maskstore_ps(p, low8(n), x); }
inline void store_first(double* p, ptrdiff_t n, VD x) { _mm256_maskstore_pd(p, low4(n), x); }
inline void stream(float* p, VF x) { _mm256_stream_ps(p, x); }
inline void stream(double* p, VD x) { _mm256_stream_pd(p, x); }
inline void stream_fence() { _mm_sfence(); }

inline VF broadcast(float x) { return _mm256_set1_ps(x); }
inline VD broadcast(double x) { return _mm256_set1_pd(x); }

inline VF add(VF a, VF b) { return _mm256_add_ps(a, b); }
inline VD add(VD a, VD b) { return _mm256_add_pd(a, b); }
inline VF sub(VF a, VF b) { return _mm256_sub_ps(a, b); }
inline VD sub(VD a, VD b) { return _mm256_sub_pd(a, b); }
inline VF mul(VF a, VF b) { return _mm256_mul_ps(a, b); }
inline VD mul(VD a, VD b) { return _mm256_mul_pd(a, b); }
inline VF div(VF a, VF b) { return _mm256_div_ps(a, b); }
inline VD div(VD a, VD b) { return _mm256_div_pd(a, b); }
inline VF mul_add(VF a, VF b, VF c) { return _mm256_fmadd_ps(a, b, c); }
inline VD mul_add(VD a, VD b, VD c) { return _mm256_fmadd_pd(a, b, c); }
inline VF max(VF a, VF b) { return _mm256_max_ps(a, b); }
inline VD max(VD a, VD b) { return _mm256_max_pd(a, b); }
inline VF min(VF a, VF b) { return _mm256_min_ps(a, b); }
inline VD min(VD a, VD b) { return _mm256_min_pd(a, b); }
inline VF abs(VF a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline VD abs(VD a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a); }
inline VF greater_magnitude(VF a, VF x) {
  return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(abs(x))));
}
inline VF copy_sign(VF magnitude, VF sign) {
  return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}
inline VD copy_sign(VD magnitude, VD sign) {
  return _mm256_or_pd(magnitude, _mm256_and_pd(sign, _mm256_set1_pd(-0.0)));
}

inline MF not_less(VF a, VF b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
inline MD not_less(VD a, VD b) { return _mm256_cmp_pd(a, b, _CMP_NLT_UQ); }
inline MF not_less_equal(VF a, VF b) { return _mm256_cmp_ps(a, b, _CMP_NLE_UQ); }
inline MD not_less_equal(VD a, VD b) { return _mm256_cmp_pd(a, b, _CMP_NLE_UQ); }
inline MF equal(VF a, VF b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
inline MD equal(VD a, VD b) { return _mm256_cmp_pd(a, b, _CMP_EQ_OQ); }
inline VF select(MF m, VF yes, VF no) { return _mm256_blendv_ps(no, yes, m); }
inline VD select(MD m, VD yes, VD no) { return _mm256_blendv_pd(no, yes, m); }
inline VF select_or_zero(MF m, VF yes) { return _mm256_and_ps(m, yes); }
inline VD select_or_zero(MD m, VD yes) { return _mm256_and_pd(m, yes); }
inline MF either(MF a, MF b) { return _mm256_or_ps(a, b); }
inline MD either(MD a, MD b) { return _mm256_or_pd(a, b); }
inline uint32_t mask_bits(MF m) { return static_cast<uint32_t>(_mm256_movemask_ps(m)); }
inline uint32_t mask_bits(MD m) { return static_cast<uint32_t>(_mm256_movemask_pd(m)); }
inline MF first_lanes(ptrdiff_t n, const float*) { return _mm256_castsi256_ps(low8(n)); }
inline MD first_lanes(ptrdiff_t n, const double*) { return _mm256_castsi256_pd(low4(n)); }

using VW = __m256i;
constexpr int kWordLanes = 4, kWordChains = 2;
inline VW broadcast_word(uint32_t x) { return _mm256_set1_epi64x(x); }
inline VW count_words(uint32_t first) { return _mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_setr_epi64x(0, 1, 2, 3)); }
inline VW multiply_words(VW a, uint32_t b) { return _mm256_mul_epu32(a, _mm256_set1_epi64x(b)); }
inline VW high_words(VW a) { return _mm256_srli_epi64(a, 32); }
inline VW xor_words(VW a, VW b, VW c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
inline void store_words(uint32_t* p, VW a) {
  const __m256i low = _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(low));
}
inline VF load_halves(const uint32_t* p, float) { return _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_loadu_si256((const __m256i*)p), 1)); }
inline VD load_halves(const uint32_t* p, double) { return _mm256_cvtepi32_pd(_mm_srli_epi32(_mm_loadu_si128((const __m128i*)p), 1)); }

inline VF table_exp2(VF magic_sum, const int32_t* table) {
  const __m256i n = _mm256_castps_si256(magic_sum);
  const __m256i low = _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const __m256i*)table), n);
  const __m256i high = _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const __m256i*)(table + 8)), n);
  const __m256i bit3 = _mm256_slli_epi32(n, 28);  // bit 3 of the index becomes the sign that blendv looks at
  const __m256 entry = _mm256_blendv_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), _mm256_castsi256_ps(bit3));
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(n, 19), _mm256_castps_si256(entry)));
}
inline VF exponent_exp2(VF magic_sum) {
  const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(magic_sum), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(0x3f800000)));
}
inline VD exponent_exp2(VD magic_sum) {
  const __m256i shifted = _mm256_slli_epi64(_mm256_castpd_si256(magic_sum), 52);
  return _mm256_castsi256_pd(_mm256_add_epi64(shifted, _mm256_set1_epi64x(0x3ff0000000000000ll)));
}

// The canonical tree below the step "8 apart", which adds the two registers of a 16-lane accumulator.
inline float reduce_add4(__m128 x) {
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float reduce_add(VF a) { return reduce_add4(_mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1))); }
inline double reduce_add(VD a) {
  const __m128d q = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(q, _mm_unpackhi_pd(q, q)));
}
inline float reduce_max(VF a) {
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
inline double reduce_max(VD a) {
  const __m128d q = _mm_max_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_max_sd(q, _mm_unpackhi_pd(q, q)));
}

// The sums of a full tile of 3 rows x 2 ids whose accumulators are acc[p * 6 + m * 2 + n] for part p, by transposing adds: the
// canonical tree in every lane, 30 instructions instead of 75. A register holds id 0 in its low half and id 1 in its high half.
constexpr bool kHasTileReduce = true;
inline VF pair_apart2(VF a, VF b) {
  const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
  return add(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
inline __attribute__((always_inline)) void tile_reduce(const VF* acc, float* out, ptrdiff_t out_stride) {
  VF row[3];
  LMHEAD_UNROLL
  for (int m = 0; m < 3; ++m) {
    const VF first = add(acc[2 * m], acc[6 + 2 * m]), second = add(acc[2 * m + 1], acc[6 + 2 * m + 1]);  // 8 apart
    row[m] = add(_mm256_permute2f128_ps(first, second, 0x20), _mm256_permute2f128_ps(first, second, 0x31));  // 4 apart
  }
  const VF left = pair_apart2(row[0], row[1]), right = pair_apart2(row[2], row[2]);
  const VF sums = add(_mm256_shuffle_ps(left, right, 0x88), _mm256_shuffle_ps(left, right, 0xdd));  // 1 apart: rows 0, 1, 2, 2
  const __m128 id0 = _mm256_castps256_ps128(sums), id1 = _mm256_extractf128_ps(sums, 1);
  const __m128 rows01 = _mm_unpacklo_ps(id0, id1), rows22 = _mm_unpackhi_ps(id0, id1);
  _mm_storel_pi((__m64*)out, rows01);
  _mm_storeh_pi((__m64*)(out + out_stride), rows01);
  _mm_storel_pi((__m64*)(out + 2 * out_stride), rows22);
}

// The first n of `count` 16-bit values through a small buffer: there is no 16-bit masked load before AVX-512.
template <int count>
inline void copy_first_u16(const uint16_t* p, ptrdiff_t n, uint16_t* buffer) {
  for (int i = 0; i < count; ++i) buffer[i] = 0;
  for (ptrdiff_t i = 0; i < count && i < n; ++i) __builtin_memcpy(buffer + i, p + i, 2);
}
inline VF load_bf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
inline VF load_bf16_first(const uint16_t* p, ptrdiff_t n) {
  uint16_t buffer[8];
  copy_first_u16<8>(p, n, buffer);
  return load_bf16(buffer);
}
inline void store_bf16(uint16_t* p, VF x) {
  const __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
  const __m256i to_even = _mm256_add_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, to_even), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i lanes = _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lanes, lanes), 0x08);
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(packed));
}
inline void store_bf16_first(uint16_t* p, ptrdiff_t n, VF x) {
  uint16_t buffer[8];
  store_bf16(buffer, x);
  for (ptrdiff_t i = 0; i < 8 && i < n; ++i) __builtin_memcpy(p + i, buffer + i, 2);
}
inline VF load_f16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
inline VF load_f16_first(const uint16_t* p, ptrdiff_t n) {
  uint16_t buffer[8];
  copy_first_u16<8>(p, n, buffer);
  return load_f16(buffer);
}

inline __m256i load_bytes(const void* p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
inline VF load_i8(const int8_t* p) { return _mm256_cvtepi32_ps(load_bytes(p)); }
inline VF load_i8_first(const int8_t* p, ptrdiff_t n) {
  int8_t buffer[8] = {};
  for (ptrdiff_t i = 0; i < 8 && i < n; ++i) buffer[i] = p[i];
  return load_i8(buffer);
}
inline VF i4_scale(VF scale) { return scale; }
inline VF scaled_i4_low(const uint8_t* p, VF prepared) {
  return mul(_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(load_bytes(p), 28), 28)), prepared);
}
inline VF scaled_i4_high(const uint8_t* p, VF prepared) { return mul(_mm256_cvtepi32_ps(_mm256_srai_epi32(load_bytes(p), 4)), prepared); }
inline VF broadcast_f16(const uint16_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(bits)));
}

inline VF load_bf16_odd(const uint16_t* p) {
  const __m256i pairs = _mm256_loadu_si256((const __m256i*)p);
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(int32_t(0xffff0000))));
}
inline VF load_bf16_even(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i*)p), 16));
}
inline VF load_bf16_odd_first(const uint16_t* p, ptrdiff_t n) {
  uint16_t buffer[16];
  copy_first_u16<16>(p, n, buffer);
  return load_bf16_odd(buffer);
}
inline VF load_bf16_even_first(const uint16_t* p, ptrdiff_t n) {
  uint16_t buffer[16];
  copy_first_u16<16>(p, n, buffer);
  return load_bf16_even(buffer);
}

inline __m256i broadcast_pair(const uint16_t* pair) {
  int32_t word;
  __builtin_memcpy(&word, pair, 4);
  return _mm256_set1_epi32(word);
}
inline VF broadcast_bf16_odd(const uint16_t* pair) {
  return _mm256_castsi256_ps(_mm256_and_si256(broadcast_pair(pair), _mm256_set1_epi32(int32_t(0xffff0000))));
}
inline VF broadcast_bf16_even(const uint16_t* pair) { return _mm256_castsi256_ps(_mm256_slli_epi32(broadcast_pair(pair), 16)); }
constexpr int kPairColumns = 16;
inline void pair_u16(const uint16_t* first, const uint16_t* second, uint32_t* words) {
  const __m256i a = _mm256_loadu_si256((const __m256i*)first), b = _mm256_loadu_si256((const __m256i*)second);
  const __m256i low = _mm256_unpacklo_epi16(a, b), high = _mm256_unpackhi_epi16(a, b);  // columns 0-3, 8-11 and 4-7, 12-15
  _mm256_storeu_si256((__m256i*)words, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256((__m256i*)(words + 8), _mm256_permute2x128_si256(low, high, 0x31));
}

constexpr bool kHasDotBf16 = false;
struct DotBf16;

inline void store_low_bytes(uint8_t* p, VF x) {
  const __m256i bytes = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0xff));
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  _mm_storel_epi64((__m128i*)p, _mm_packus_epi16(words, words));
}

// 16-bit products, added in pairs: `vpmaddubsw` would saturate at 32767. Bytes become words by a mask and a shift, which leaves the sums of
// an id in its own lane; `vpmovzxbw` would cross lanes, which half the units can. 4 rows x 2 accumulators + 4 registers of weights, two of
// hidden numbers and one of products: 15 of 16.
constexpr int kScreenPartBytes = 2, kScreenRows = 4, kScreenChains = 2;
constexpr bool kScreenOutrunsFma = false;
constexpr int64_t kScreenSegment = 128;
struct ScreenChunk { __m256i even[2], odd[2]; };  // 8 ids each
struct ScreenSums { __m256i ids[2]; };            // 8 ids each
inline ScreenSums screen_zero() { return {{_mm256_setzero_si256(), _mm256_setzero_si256()}}; }
inline ScreenChunk load_chunk(const uint8_t* p) {
  ScreenChunk chunk;
  LMHEAD_UNROLL
  for (int q = 0; q < 2; ++q) {
    const __m256i bytes = _mm256_loadu_si256((const __m256i*)(p + 32 * q));
    chunk.even[q] = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
    chunk.odd[q] = _mm256_srli_epi16(bytes, 8);
  }
  return chunk;
}
inline void add_products(ScreenSums& sums, const ScreenChunk& chunk, const char* numbers) {
  const __m256i even = _mm256_broadcastd_epi32(_mm_loadu_si32(numbers)), odd = _mm256_broadcastd_epi32(_mm_loadu_si32(numbers + 4));
  LMHEAD_UNROLL
  for (int q = 0; q < 2; ++q) {
    sums.ids[q] = _mm256_add_epi32(sums.ids[q], _mm256_madd_epi16(chunk.even[q], even));
    sums.ids[q] = _mm256_add_epi32(sums.ids[q], _mm256_madd_epi16(chunk.odd[q], odd));
  }
}
inline void add_sums(ScreenSums& sums, const ScreenSums& more) {
  LMHEAD_UNROLL
  for (int q = 0; q < 2; ++q) sums.ids[q] = _mm256_add_epi32(sums.ids[q], more.ids[q]);
}
inline void add_to_totals(const ScreenSums& sums, const int32_t* corrections, int64_t* totals) {
  LMHEAD_UNROLL
  for (int q = 0; q < 2; ++q) {
    const __m256i ids = _mm256_add_epi32(sums.ids[q], _mm256_set1_epi32(corrections[0]));
    auto* to = (__m256i*)(totals + 8 * q);
    _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to), _mm256_cvtepi32_epi64(_mm256_castsi256_si128(ids))));
    _mm256_storeu_si256(to + 1, _mm256_add_epi64(_mm256_loadu_si256(to + 1), _mm256_cvtepi32_epi64(_mm256_extracti128_si256(ids, 1))));
  }
}
inline VF load_i64(const int64_t* p) {
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = static_cast<float>(p[i]);
  return load(x);
}

template <class V> inline void keep_in_register(V& x) { __asm__("" : "+x"(x)); }
// The value is computed, whether or not anyone looks at it.
template <class V> inline void use(V x) { __asm__ volatile("" : : "x"(x)); }
inline __attribute__((always_inline)) void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace
}  // namespace lmhead
