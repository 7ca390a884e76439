// The vocabulary on one lane: what every ISA must compute, in plain C++. Slow, portable, and the definition of the others.
// It knows no kernel; it refuses to know any instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/unroll.hpp"

namespace lmhead {
namespace {

using VF = float;      // native vector of float32
using VD = double;     // native vector of float64
using MF = bool;       // mask over VF
using MD = bool;       // mask over VD; the same type, so overloads on masks take the vector too

// 1 x 1: nothing to keep in registers, one accumulator per canonical lane is already 16 chains.
constexpr int kTileRows = 1, kTileIds = 1, kTileIdsOneRow = 1, kTileGroups = 1;
// The tile of a contraction; `fmaf` is a call here, which no register outlives.
constexpr int kContractRows = 1, kContractVectors = 1;
// A quantised tile: hidden rows and weight rows, and weight rows beside a single hidden row.
constexpr int kQuantizedRows = 1, kQuantizedIds = 1, kQuantizedIdsOneRow = 1;
constexpr bool kHasTileReduce = false;

inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float from_bits(uint32_t u) { return __builtin_bit_cast(float, u); }
inline uint64_t bits_of(double x) { return __builtin_bit_cast(uint64_t, x); }
inline double from_bits(uint64_t u) { return __builtin_bit_cast(double, u); }

inline VF load(const float* p) { float x; __builtin_memcpy(&x, p, 4); return x; }
inline VD load(const double* p) { double x; __builtin_memcpy(&x, p, 8); return x; }
inline VF load_first(const float* p, ptrdiff_t n, float fill) { return n > 0 ? load(p) : fill; }
inline VD load_first(const double* p, ptrdiff_t n, double fill) { return n > 0 ? load(p) : fill; }
inline void store(float* p, VF x) { __builtin_memcpy(p, &x, 4); }
inline void store(double* p, VD x) { __builtin_memcpy(p, &x, 8); }
inline void store_first(float* p, ptrdiff_t n, VF x) { if (n > 0) store(p, x); }
inline void store_first(double* p, ptrdiff_t n, VD x) { if (n > 0) store(p, x); }
inline void stream(float* p, VF x) { store(p, x); }
inline void stream(double* p, VD x) { store(p, x); }
inline void stream_fence() {}

inline VF broadcast(float x) { return x; }
inline VD broadcast(double x) { return x; }

inline VF add(VF a, VF b) { return a + b; }
inline VD add(VD a, VD b) { return a + b; }
inline VF sub(VF a, VF b) { return a - b; }
inline VD sub(VD a, VD b) { return a - b; }
inline VF mul(VF a, VF b) { return a * b; }
inline VD mul(VD a, VD b) { return a * b; }
inline VF div(VF a, VF b) { return a / b; }
inline VD div(VD a, VD b) { return a / b; }
inline VF mul_add(VF a, VF b, VF c) { return __builtin_fmaf(a, b, c); }
inline VD mul_add(VD a, VD b, VD c) { return __builtin_fma(a, b, c); }
// As `maxps` does: the second operand where the two are unordered or equal.
inline VF max(VF a, VF b) { return a > b ? a : b; }
inline VD max(VD a, VD b) { return a > b ? a : b; }
inline VF min(VF a, VF b) { return a < b ? a : b; }
inline VD min(VD a, VD b) { return a < b ? a : b; }
inline VF abs(VF a) { return from_bits(bits_of(a) & 0x7fffffffu); }
inline VD abs(VD a) { return from_bits(bits_of(a) & uint64_t(0x7fffffffffffffff)); }
// The greater magnitude, in the order of bits: infinity above all numbers, NaN above infinity. a has no sign.
inline VF greater_magnitude(VF a, VF x) { return bits_of(a) > bits_of(abs(x)) ? a : abs(x); }
inline VF copy_sign(VF magnitude, VF sign) { return from_bits(bits_of(magnitude) | (bits_of(sign) & 0x80000000u)); }
inline VD copy_sign(VD magnitude, VD sign) {
  return from_bits(bits_of(magnitude) | (bits_of(sign) & uint64_t(0x8000000000000000)));
}

inline bool not_less(VF a, VF b) { return !(a < b); }
inline bool not_less(VD a, VD b) { return !(a < b); }
inline bool not_less_equal(VF a, VF b) { return !(a <= b); }
inline bool not_less_equal(VD a, VD b) { return !(a <= b); }
inline bool equal(VF a, VF b) { return a == b; }
inline bool equal(VD a, VD b) { return a == b; }
inline VF select(bool m, VF yes, VF no) { return m ? yes : no; }
inline VD select(bool m, VD yes, VD no) { return m ? yes : no; }
inline VF select_or_zero(bool m, VF yes) { return m ? yes : 0.0f; }
inline VD select_or_zero(bool m, VD yes) { return m ? yes : 0.0; }
inline bool either(bool a, bool b) { return a || b; }
inline uint32_t mask_bits(bool m) { return m; }
inline bool first_lanes(ptrdiff_t n, const float*) { return n > 0; }
inline bool first_lanes(ptrdiff_t n, const double*) { return n > 0; }

// 32-bit words in 64-bit places, whose upper halves may hold anything.
using VW = uint64_t;
constexpr int kWordLanes = 1;
constexpr int kWordChains = 1;  // vectors of words that are multiplied side by side
inline VW broadcast_word(uint32_t x) { return x; }
inline VW count_words(uint32_t first) { return first; }  // first, first + 1, ... modulo 2^32
inline VW multiply_words(VW a, uint32_t b) { return uint64_t{static_cast<uint32_t>(a)} * b; }  // all 64 bits
inline VW high_words(VW a) { return a >> 32; }
inline VW xor_words(VW a, VW b, VW c) { return a ^ b ^ c; }
inline void store_words(uint32_t* p, VW a) {
  const auto low = static_cast<uint32_t>(a);
  __builtin_memcpy(p, &low, 4);
}
// Half of each word, rounded down, as a number of the second argument's type.
inline uint32_t load_half(const uint32_t* p) { uint32_t u; __builtin_memcpy(&u, p, 4); return u >> 1; }
inline VF load_halves(const uint32_t* p, float) { return static_cast<float>(static_cast<int32_t>(load_half(p))); }
inline VD load_halves(const uint32_t* p, double) { return static_cast<double>(static_cast<int32_t>(load_half(p))); }

// 2^(n / 16) from the mantissa bits of n + kMagic; kernels/exp.inl.hpp has the table.
inline VF table_exp2(VF magic_sum, const int32_t* table) {
  const uint32_t n = bits_of(magic_sum);
  return from_bits((n << 19) + static_cast<uint32_t>(table[n & 15u]));
}
// 2^n, exactly, from the mantissa bits of n + magic.
inline VF exponent_exp2(VF magic_sum) { return from_bits((bits_of(magic_sum) << 23) + 0x3f800000u); }
inline VD exponent_exp2(VD magic_sum) { return from_bits((bits_of(magic_sum) << 52) + uint64_t(0x3ff0000000000000)); }

inline float reduce_add(VF a) { return a; }
inline double reduce_add(VD a) { return a; }
inline void tile_reduce(const VF*, float*, ptrdiff_t) {}
inline float reduce_max(VF a) { return a; }
inline double reduce_max(VD a) { return a; }

inline float widen_bf16_bits(uint16_t u) { return from_bits(static_cast<uint32_t>(u) << 16); }

// float16 to float32, exact: subnormals by a float subtraction that the default rounding leaves exact.
inline float widen_f16_bits(uint16_t u) {
  const uint32_t sign = static_cast<uint32_t>(u & 0x8000u) << 16;
  const uint32_t magnitude = u & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // inf keeps its mantissa 0, NaN becomes quiet as `vcvtph2ps` makes it
    const uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0u;
    return from_bits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13) | quiet);
  }
  if (magnitude >= 0x0400u) return from_bits(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
  const float tiny = from_bits(0x38800000u | (magnitude << 13)) - from_bits(0x38800000u);  // 2^-14 * (1 + m) - 2^-14
  return from_bits(sign | bits_of(tiny));
}

inline uint16_t load_u16(const uint16_t* p) { uint16_t x; __builtin_memcpy(&x, p, 2); return x; }
inline VF load_bf16(const uint16_t* p) { return widen_bf16_bits(load_u16(p)); }
inline VF load_bf16_first(const uint16_t* p, ptrdiff_t n) { return n > 0 ? load_bf16(p) : 0.0f; }
inline VF load_f16(const uint16_t* p) { return widen_f16_bits(load_u16(p)); }
inline VF load_f16_first(const uint16_t* p, ptrdiff_t n) { return n > 0 ? load_f16(p) : 0.0f; }
// Two neighbours of a bfloat16 row per lane: the odd one and the even one.
inline VF load_bf16_odd(const uint16_t* p) { return load_bf16(p + 1); }
inline VF load_bf16_even(const uint16_t* p) { return load_bf16(p); }
inline VF load_bf16_odd_first(const uint16_t* p, ptrdiff_t n) { return n > 1 ? load_bf16(p + 1) : 0.0f; }
inline VF load_bf16_even_first(const uint16_t* p, ptrdiff_t n) { return n > 0 ? load_bf16(p) : 0.0f; }

// Integers of 8 bits.
inline VF load_i8(const int8_t* p) { return static_cast<float>(*p); }
inline VF load_i8_first(const int8_t* p, ptrdiff_t n) { return n > 0 ? load_i8(p) : 0.0f; }
// Integers of 4 bits in two's complement times a scale, rounded once: the low or the high ones of neighbouring bytes. `prepared` is
// what i4_scale makes of the scale in every lane.
inline VF i4_scale(VF scale) { return scale; }
inline VF scaled_i4_low(const uint8_t* p, VF prepared) { return static_cast<float>(((*p & 15) ^ 8) - 8) * prepared; }
inline VF scaled_i4_high(const uint8_t* p, VF prepared) { return static_cast<float>((*p >> 4 ^ 8) - 8) * prepared; }
inline VF broadcast_f16(const uint16_t* p) { return load_f16(p); }

// Rounded to the nearest bfloat16, ties to even; NaN becomes quiet.
inline void store_bf16(uint16_t* p, VF x) {
  const uint32_t u = bits_of(x);
  const uint16_t rounded = static_cast<uint16_t>(x != x ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  __builtin_memcpy(p, &rounded, 2);
}
inline void store_bf16_first(uint16_t* p, ptrdiff_t n, VF x) { if (n > 0) store_bf16(p, x); }
// One neighbour of a pair of bfloat16 in every lane.
inline VF broadcast_bf16_odd(const uint16_t* pair) { return load_bf16(pair + 1); }
inline VF broadcast_bf16_even(const uint16_t* pair) { return load_bf16(pair); }
// kPairColumns words: an element of `first` below, that of `second` above.
constexpr int kPairColumns = 1;
inline void pair_u16(const uint16_t* first, const uint16_t* second, uint32_t* words) {
  *words = uint32_t{load_u16(first)} | uint32_t{load_u16(second)} << 16;
}

// Whether there is one instruction for both elements of a pair, the odd one first; then `DotBf16` is its vocabulary: `Pairs`, a
// register of bfloat16 pairs, and how to load, broadcast and multiply them. Templates that take it are instantiated only there.
constexpr bool kHasDotBf16 = false;
struct DotBf16;

// The low 8 bits of every lane.
inline void store_low_bytes(uint8_t* p, VF x) { *p = static_cast<uint8_t>(bits_of(x)); }

// The screen: chunks of 4 unsigned bytes of each of 16 ids against 4 elements of a hidden row, which are 16-bit numbers here, or their high
// and low bytes where a table multiplies bytes as they are. Sums modulo 2^32 for so many chunks (127 * 32639 * 4 * 128 < 2^31 once
// they are corrected), then exact in int64.
constexpr int kScreenPartBytes = 2;
constexpr int64_t kScreenSegment = 128;
constexpr bool kScreenOutrunsFma = false;  // a product takes half the time of one of float32, or less
constexpr int kScreenRows = 1;    // hidden rows that have accumulators at once
constexpr int kScreenChains = 1;  // accumulators that hide the latency of an addition, of all rows together
using ScreenChunk = const uint8_t*;
struct ScreenSums { uint32_t id[16]; };
inline ScreenSums screen_zero() { return {}; }
inline ScreenChunk load_chunk(const uint8_t* p) { return p; }
inline void add_products(ScreenSums& sums, ScreenChunk chunk, const char* numbers) {
  int16_t h[4];
  __builtin_memcpy(h, numbers, 8);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 4; ++j) sums.id[i] += static_cast<uint32_t>(chunk[4 * i + j] * h[j / 2 + j % 2 * 2]);
}
inline void add_sums(ScreenSums& sums, const ScreenSums& more) {
  for (int i = 0; i < 16; ++i) sums.id[i] += more.id[i];
}
// totals[i] += the sum of id i, corrected.
inline void add_to_totals(const ScreenSums& sums, const int32_t* corrections, int64_t* totals) {
  for (int i = 0; i < 16; ++i) totals[i] += static_cast<int32_t>(sums.id[i] + static_cast<uint32_t>(corrections[0]));
}
inline VF load_i64(const int64_t* p) { return static_cast<float>(*p); }

constexpr int kTransposeBlock = 1;
inline void transpose_block(const uint32_t* in, ptrdiff_t, uint32_t* out, ptrdiff_t) { *out = *in; }

template <class V> inline void keep_in_register(V&) {}
// The value is computed, whether or not anyone looks at it.
template <class V> inline void use(V x) { __asm__ volatile("" : : "g"(x)); }
inline __attribute__((always_inline)) void prefetch_l2(const void*) {}

}  // namespace
}  // namespace lmhead
