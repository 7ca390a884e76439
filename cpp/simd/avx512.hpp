// The vocabulary on 512-bit registers (AVX-512 F, BW, DQ, VL; BF16 where the translation unit is compiled with it).
// It knows instructions; it refuses to know any kernel. Each operation has the meaning simd/scalar.hpp gives it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "simd/unroll.hpp"
#include "simd/x86_transpose.hpp"

namespace lmhead {
namespace {

using VF = __m512;
using VD = __m512d;
using MF = __mmask16;
using MD = __mmask8;

// 4 x 6 = 24 accumulators + 6 weight vectors + 1 hidden vector = 31 of 32 registers; 24 chains hide the FMA latency of
// 4 cycles at 1 per cycle six times over, and a step needs 10 loads for 24 FMAs.
constexpr int kTileRows = 4, kTileIds = 6, kTileIdsOneRow = 6, kTileGroups = 1;

// The tile of a contraction: 6 rows x 4 vectors = 24 accumulators + 4 vectors + 1 coefficient = 29 of 32 registers, and 10
// loads for 24 FMAs.
constexpr int kContractRows = 6, kContractVectors = 4;

// Quantised rows: 4 x 4 = 16 accumulators + 4 scales + 4 hidden vectors + 1 weight vector = 25 of 32 registers. A chain takes 16
// elements in the latency of an FMA, 4 cycles, so a single row would wait for it and not for memory.
constexpr int kQuantizedRows = 4, kQuantizedIds = 4, kQuantizedIdsOneRow = 4;

inline VF load(const float* p) { return _mm512_loadu_ps(p); }
inline VD load(const double* p) { return _mm512_loadu_pd(p); }
inline __mmask16 low16(ptrdiff_t n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1u); }
inline __mmask8 low8(ptrdiff_t n) { return n >= 8 ? 0xff : n <= 0 ? 0 : static_cast<__mmask8>((1u << n) - 1u); }
inline VF load_first(const float* p, ptrdiff_t n, float fill) { return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), low16(n), p); }
inline VD load_first(const double* p, ptrdiff_t n, double fill) { return _mm512_mask_loadu_pd(_mm512_set1_pd(fill), low8(n), p); }
inline void store(float* p, VF x) { _mm512_storeu_ps(p, x); }
inline void store(double* p, VD x) { _mm512_storeu_pd(p, x); }
inline void store_first(float* p, ptrdiff_t n, VF x) { _mm512_mask_storeu_ps(p, low16(n), x); }
inline void store_first(double* p, ptrdiff_t n, VD x) { _mm512_mask_storeu_pd(p, low8(n), x); }
inline void stream(float* p, VF x) { _mm512_stream_ps(p, x); }
inline void stream(double* p, VD x) { _mm512_stream_pd(p, x); }
inline void stream_fence() { _mm_sfence(); }

inline VF broadcast(float x) { return _mm512_set1_ps(x); }
inline VD broadcast(double x) { return _mm512_set1_pd(x); }

inline VF add(VF a, VF b) { return _mm512_add_ps(a, b); }
inline VD add(VD a, VD b) { return _mm512_add_pd(a, b); }
inline VF sub(VF a, VF b) { return _mm512_sub_ps(a, b); }
inline VD sub(VD a, VD b) { return _mm512_sub_pd(a, b); }
inline VF mul(VF a, VF b) { return _mm512_mul_ps(a, b); }
inline VD mul(VD a, VD b) { return _mm512_mul_pd(a, b); }
inline VF div(VF a, VF b) { return _mm512_div_ps(a, b); }
inline VD div(VD a, VD b) { return _mm512_div_pd(a, b); }
inline VF mul_add(VF a, VF b, VF c) { return _mm512_fmadd_ps(a, b, c); }
inline VD mul_add(VD a, VD b, VD c) { return _mm512_fmadd_pd(a, b, c); }
inline VF max(VF a, VF b) { return _mm512_max_ps(a, b); }
inline VD max(VD a, VD b) { return _mm512_max_pd(a, b); }
inline VF min(VF a, VF b) { return _mm512_min_ps(a, b); }
inline VD min(VD a, VD b) { return _mm512_min_pd(a, b); }
inline VF abs(VF a) { return _mm512_abs_ps(a); }
inline VD abs(VD a) { return _mm512_abs_pd(a); }
inline VF greater_magnitude(VF a, VF x) {
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(abs(x))));
}
inline VF copy_sign(VF magnitude, VF sign) {
  return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}
inline VD copy_sign(VD magnitude, VD sign) {
  return _mm512_or_pd(magnitude, _mm512_and_pd(sign, _mm512_set1_pd(-0.0)));
}

inline MF not_less(VF a, VF b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
inline MD not_less(VD a, VD b) { return _mm512_cmp_pd_mask(a, b, _CMP_NLT_UQ); }
inline MF not_less_equal(VF a, VF b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
inline MD not_less_equal(VD a, VD b) { return _mm512_cmp_pd_mask(a, b, _CMP_NLE_UQ); }
inline MF equal(VF a, VF b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline MD equal(VD a, VD b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
inline VF select(__mmask16 m, VF yes, VF no) { return _mm512_mask_mov_ps(no, m, yes); }
inline VD select(__mmask8 m, VD yes, VD no) { return _mm512_mask_mov_pd(no, m, yes); }
inline VF select_or_zero(__mmask16 m, VF yes) { return _mm512_maskz_mov_ps(m, yes); }
inline VD select_or_zero(__mmask8 m, VD yes) { return _mm512_maskz_mov_pd(m, yes); }
inline MF either(MF a, MF b) { return static_cast<MF>(a | b); }
inline MD either(MD a, MD b) { return static_cast<MD>(a | b); }
inline uint32_t mask_bits(MF m) { return m; }
inline uint32_t mask_bits(MD m) { return m; }
inline MF first_lanes(ptrdiff_t n, const float*) { return low16(n); }
inline MD first_lanes(ptrdiff_t n, const double*) { return low8(n); }

using VW = __m512i;
constexpr int kWordLanes = 8, kWordChains = 2;
inline VW broadcast_word(uint32_t x) { return _mm512_set1_epi64(x); }
inline VW count_words(uint32_t first) { return _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7)); }
inline VW multiply_words(VW a, uint32_t b) { return _mm512_mul_epu32(a, _mm512_set1_epi64(b)); }
inline VW high_words(VW a) { return _mm512_srli_epi64(a, 32); }
inline VW xor_words(VW a, VW b, VW c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
inline void store_words(uint32_t* p, VW a) { _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi64_epi32(a)); }
inline VF load_halves(const uint32_t* p, float) { return _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_loadu_si512(p), 1)); }
inline VD load_halves(const uint32_t* p, double) { return _mm512_cvtepi32_pd(_mm256_srli_epi32(_mm256_loadu_si256((const __m256i*)p), 1)); }

inline VF table_exp2(VF magic_sum, const int32_t* table) {
  const __m512i n = _mm512_castps_si512(magic_sum);
  const __m512i entry = _mm512_permutexvar_epi32(n, _mm512_loadu_si512(table));  // looks at the low 4 bits only
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(n, 19), entry));
}
inline VF exponent_exp2(VF magic_sum) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(magic_sum), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(0x3f800000)));
}
inline VD exponent_exp2(VD magic_sum) {
  const __m512i shifted = _mm512_slli_epi64(_mm512_castpd_si512(magic_sum), 52);
  return _mm512_castsi512_pd(_mm512_add_epi64(shifted, _mm512_set1_epi64(0x3ff0000000000000ll)));
}

// The canonical tree: lanes 8 apart, then 4, 2 and 1 apart.
inline float reduce_add4(__m128 x) {
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float reduce_add(VF a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  return reduce_add4(_mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
}
inline double reduce_add(VD a) {
  const __m256d h = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
  const __m128d q = _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
  return _mm_cvtsd_f64(_mm_add_sd(q, _mm_unpackhi_pd(q, q)));
}
inline float reduce_max(VF a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
inline double reduce_max(VD a) {
  const __m256d h = _mm256_max_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
  const __m128d q = _mm_max_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
  return _mm_cvtsd_f64(_mm_max_sd(q, _mm_unpackhi_pd(q, q)));
}

inline VF load_bf16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
inline VF load_bf16_first(const uint16_t* p, ptrdiff_t n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(low16(n), p)), 16));
}
inline VF load_f16(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
inline VF load_f16_first(const uint16_t* p, ptrdiff_t n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(low16(n), p)); }

inline VF load_i8(const int8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p))); }
inline VF load_i8_first(const int8_t* p, ptrdiff_t n) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(low16(n), p)));
}
// All 16 products at once: a permutation looks at the low 4 bits of its indices and at nothing else.
alignas(64) constexpr float kSigned4[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
inline __m512i load_bytes(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)); }
inline VF i4_scale(VF scale) { return mul(_mm512_load_ps(kSigned4), scale); }
inline VF scaled_i4_low(const uint8_t* p, VF prepared) { return _mm512_permutexvar_ps(load_bytes(p), prepared); }
inline VF scaled_i4_high(const uint8_t* p, VF prepared) { return _mm512_permutexvar_ps(_mm512_srli_epi32(load_bytes(p), 4), prepared); }
inline VF broadcast_f16(const uint16_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(bits)));
}

// Not `vcvtneps2bf16`, which counts subnormals as 0.
inline __m256i narrow_bf16_lanes(VF x) {
  const __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
  const __m512i to_even = _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, to_even), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
}
inline void store_bf16(uint16_t* p, VF x) { _mm256_storeu_si256((__m256i*)p, narrow_bf16_lanes(x)); }
inline void store_bf16_first(uint16_t* p, ptrdiff_t n, VF x) { _mm256_mask_storeu_epi16(p, low16(n), narrow_bf16_lanes(x)); }

inline __m512i load_u16x32_first(const uint16_t* p, ptrdiff_t n) {
  const __mmask32 m = n >= 32 ? 0xffffffffu : n <= 0 ? 0u : (1u << n) - 1u;
  return _mm512_maskz_loadu_epi16(m, p);
}
inline VF odd_of(__m512i pairs) { return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(int32_t(0xffff0000)))); }
inline VF even_of(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
inline VF load_bf16_odd(const uint16_t* p) { return odd_of(_mm512_loadu_si512(p)); }
inline VF load_bf16_even(const uint16_t* p) { return even_of(_mm512_loadu_si512(p)); }
inline VF load_bf16_odd_first(const uint16_t* p, ptrdiff_t n) { return odd_of(load_u16x32_first(p, n)); }
inline VF load_bf16_even_first(const uint16_t* p, ptrdiff_t n) { return even_of(load_u16x32_first(p, n)); }

inline __m512i broadcast_pair(const uint16_t* pair) {
  int32_t word;
  __builtin_memcpy(&word, pair, 4);
  return _mm512_set1_epi32(word);
}
inline VF broadcast_bf16_odd(const uint16_t* pair) { return odd_of(broadcast_pair(pair)); }
inline VF broadcast_bf16_even(const uint16_t* pair) { return even_of(broadcast_pair(pair)); }
constexpr int kPairColumns = 32;
// Element i of the first row, then of the second (bit 5 of an index): 0, 32, 1, 33, ...
alignas(64) constexpr uint32_t kInterleave16[16] = {0x200000, 0x210001, 0x220002, 0x230003, 0x240004, 0x250005, 0x260006, 0x270007,
                                                    0x280008, 0x290009, 0x2a000a, 0x2b000b, 0x2c000c, 0x2d000d, 0x2e000e, 0x2f000f};
inline void pair_u16(const uint16_t* first, const uint16_t* second, uint32_t* words) {
  const __m512i a = _mm512_loadu_si512(first), b = _mm512_loadu_si512(second);
  const __m512i low = _mm512_load_si512(kInterleave16), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  _mm512_storeu_si512(words, _mm512_permutex2var_epi16(a, low, b));
  _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi16(a, high, b));
}

#ifdef __AVX512BF16__
constexpr bool kHasDotBf16 = true;
struct DotBf16 {
  using Pairs = __m512i;
  static Pairs load(const uint16_t* p) { return _mm512_loadu_si512(p); }
  static Pairs load_first(const uint16_t* p, ptrdiff_t n) { return load_u16x32_first(p, n); }
  static Pairs broadcast(const uint16_t* pair) { return broadcast_pair(pair); }
  static VF multiply_add(Pairs a, Pairs b, VF sum) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
};
#else
constexpr bool kHasDotBf16 = false;
struct DotBf16;
#endif

inline void store_low_bytes(uint8_t* p, VF x) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(_mm512_castps_si512(x))); }

#ifdef __AVX512VNNI__
// 8 hidden rows x 2 parts = 16 accumulators + the chunk; the parts are broadcast by the instruction. Its latency is 4 or 5 cycles
// at one a cycle: fewer rows take several accumulators a part. Sums of the widest head stay within int32: 127 * 128 * 2^17 < 2^31.
constexpr int kScreenPartBytes = 1, kScreenRows = 8, kScreenChains = 4;
constexpr bool kScreenOutrunsFma = true;
constexpr int64_t kScreenSegment = int64_t(1) << 15;
using ScreenChunk = __m512i;
struct ScreenSums { __m512i high, low; };  // a lane an id
inline ScreenSums screen_zero() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
inline ScreenChunk load_chunk(const uint8_t* p) {
  __m512i chunk = _mm512_loadu_si512(p);
  __asm__("" : "+v"(chunk));  // one load for all products
  return chunk;
}
// Assembly, because GCC 12 spills accumulators around the intrinsic.
inline __attribute__((always_inline)) void add_products(ScreenSums& sums, ScreenChunk chunk, const char* parts) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums.high) : "v"(chunk), "m"(*reinterpret_cast<const int32_t*>(parts)));
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums.low) : "v"(chunk), "m"(*reinterpret_cast<const int32_t*>(parts + 4)));
}
inline void add_sums(ScreenSums& sums, const ScreenSums& more) {
  sums.high = _mm512_add_epi32(sums.high, more.high);
  sums.low = _mm512_add_epi32(sums.low, more.low);
}
inline void add_to_totals(const ScreenSums& sums, const int32_t* corrections, int64_t* totals) {
  const __m512i high = _mm512_add_epi32(sums.high, _mm512_set1_epi32(corrections[0]));
  const __m512i low = _mm512_add_epi32(sums.low, _mm512_set1_epi32(corrections[1]));
  const auto add_half = [&](__m256i half_high, __m256i half_low, int64_t* to) {
    const __m512i number = _mm512_add_epi64(_mm512_slli_epi64(_mm512_cvtepi32_epi64(half_high), 8), _mm512_cvtepi32_epi64(half_low));
    _mm512_storeu_si512(to, _mm512_add_epi64(_mm512_loadu_si512(to), number));
  };
  add_half(_mm512_castsi512_si256(high), _mm512_castsi512_si256(low), totals);
  add_half(_mm512_extracti64x4_epi64(high, 1), _mm512_extracti64x4_epi64(low, 1), totals + 8);
}
#else
// 16-bit products, added in pairs. 8 hidden rows + 2 registers of weights, 2 of hidden numbers and one of products.
constexpr int kScreenPartBytes = 2, kScreenRows = 8, kScreenChains = 2;
constexpr bool kScreenOutrunsFma = true;
constexpr int64_t kScreenSegment = 128;
struct ScreenChunk { __m512i even, odd; };
using ScreenSums = __m512i;  // a lane an id
inline ScreenSums screen_zero() { return _mm512_setzero_si512(); }
inline ScreenChunk load_chunk(const uint8_t* p) {
  const __m512i bytes = _mm512_loadu_si512(p);
  return {_mm512_and_si512(bytes, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(bytes, 8)};
}
inline void add_products(ScreenSums& sums, const ScreenChunk& chunk, const char* numbers) {
  const __m512i even = _mm512_broadcastd_epi32(_mm_loadu_si32(numbers)), odd = _mm512_broadcastd_epi32(_mm_loadu_si32(numbers + 4));
  sums = _mm512_add_epi32(sums, _mm512_madd_epi16(chunk.even, even));
  sums = _mm512_add_epi32(sums, _mm512_madd_epi16(chunk.odd, odd));
}
inline void add_sums(ScreenSums& sums, ScreenSums more) { sums = _mm512_add_epi32(sums, more); }
inline void add_to_totals(ScreenSums sums, const int32_t* corrections, int64_t* totals) {
  const __m512i ids = _mm512_add_epi32(sums, _mm512_set1_epi32(corrections[0]));
  const auto add_half = [](__m256i half, int64_t* to) {
    _mm512_storeu_si512(to, _mm512_add_epi64(_mm512_loadu_si512(to), _mm512_cvtepi32_epi64(half)));
  };
  add_half(_mm512_castsi512_si256(ids), totals);
  add_half(_mm512_extracti64x4_epi64(ids, 1), totals + 8);
}
#endif
inline VF load_i64(const int64_t* p) {
  const __m256 low = _mm512_cvtepi64_ps(_mm512_loadu_si512(p)), high = _mm512_cvtepi64_ps(_mm512_loadu_si512(p + 8));
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

// GCC folds a load into every FMA that uses it; this keeps one load and one register (Zen 4 loads one zmm a cycle).
template <class V> inline void keep_in_register(V& x) { __asm__("" : "+v"(x)); }
// The value is computed, whether or not anyone looks at it.
template <class V> inline void use(V x) { __asm__ volatile("" : : "v"(x)); }
inline __attribute__((always_inline)) void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// Sums of 16 accumulators at once by transposing adds: 30 shuffles and 15 adds, the canonical tree in every lane.
// a[4 * e + j] ends in lane 4 * j + e.
inline VF pair_apart8(VF a, VF b) {
  return add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
inline VF pair_apart4(VF a, VF b) {
  return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
inline VF quad_lanes(const VF* a) { return pair_apart4(pair_apart8(a[0], a[1]), pair_apart8(a[2], a[3])); }
inline VF pair_apart2(VF a, VF b) {
  const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
  return add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
inline VF pair_apart1(VF a, VF b) { return add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd)); }

// The sums of a full 4 x 6 tile of accumulators acc[m * 6 + n], written to rows of `out`.
constexpr bool kHasTileReduce = true;
inline __attribute__((always_inline)) void tile_reduce(const VF* acc, float* out, ptrdiff_t out_stride) {
  VF quads[6];
  LMHEAD_UNROLL
  for (int n = 0; n < 6; ++n) {
    const VF column[4] = {acc[n], acc[6 + n], acc[12 + n], acc[18 + n]};
    quads[n] = quad_lanes(column);
  }
  const VF left = pair_apart1(pair_apart2(quads[0], quads[1]), pair_apart2(quads[2], quads[3]));
  const VF last = pair_apart2(quads[4], quads[5]);
  const VF right = pair_apart1(last, last);
  _mm_storeu_ps(out, _mm512_castps512_ps128(left));
  _mm_storeu_ps(out + out_stride, _mm512_extractf32x4_ps(left, 1));
  _mm_storeu_ps(out + 2 * out_stride, _mm512_extractf32x4_ps(left, 2));
  _mm_storeu_ps(out + 3 * out_stride, _mm512_extractf32x4_ps(left, 3));
  _mm_storel_pi((__m64*)(out + 4), _mm512_castps512_ps128(right));
  _mm_storel_pi((__m64*)(out + out_stride + 4), _mm512_extractf32x4_ps(right, 1));
  _mm_storel_pi((__m64*)(out + 2 * out_stride + 4), _mm512_extractf32x4_ps(right, 2));
  _mm_storel_pi((__m64*)(out + 3 * out_stride + 4), _mm512_extractf32x4_ps(right, 3));
}

}  // namespace
}  // namespace lmhead
