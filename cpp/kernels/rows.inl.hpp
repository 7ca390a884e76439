// How a weight row is stored, as the projection reads it: one small struct a storage.
// `load` gives part p of a full step of kStep elements, `load_tail` of a last step in which only n elements exist;
// absent elements are zeros on both sides, so every lane of a last step still takes its FMA (0 * 0).
// It knows storage and the order in which elements reach a lane; it refuses to know tiles.
#pragma once

#include "simd/lanes.hpp"

namespace lmhead {
namespace {

// float32 x float32 and float64 x float64.
template <class Element>
struct PlainRow {
  using T = Element;             // accumulators and logits
  using Stored = Element;        // weight elements
  using Hidden = Element;        // prepared hidden elements
  using Operand = Vector<T>;     // a register of weights
  static constexpr int kStep = kCanonical<T>;
  static constexpr int kHalves = 1;
  static Operand load(const Stored* w, int, int p) { return lmhead::load(w + p * kLanes<T>); }
  static Operand load_tail(const Stored* w, int, int p, ptrdiff_t n) {
    return load_first(w + p * kLanes<T>, n - p * kLanes<T>, T(0));
  }
  static Operand load_hidden(const Hidden* h, int, int p) { return lmhead::load(h + p * kLanes<T>); }
  static Vector<T> multiply_add(Operand h, Operand w, Vector<T> sum) { return mul_add(h, w, sum); }
  // One register of neighbouring ids of a weight stored as (D, V).
  static Vector<T> load_columns(const Stored* w) { return lmhead::load(w); }
  static Vector<T> load_columns_tail(const Stored* w, ptrdiff_t n) { return load_first(w, n, T(0)); }
};

// Half storage under float32 hidden rows: widened exactly on load.
struct F16Row : PlainRow<float> {
  using Stored = uint16_t;
  static VF load(const Stored* w, int, int p) { return load_f16(w + p * kLanes<T>); }
  static VF load_tail(const Stored* w, int, int p, ptrdiff_t n) { return load_f16_first(w + p * kLanes<T>, n - p * kLanes<T>); }
  static VF load_columns(const Stored* w) { return load_f16(w); }
  static VF load_columns_tail(const Stored* w, ptrdiff_t n) { return load_f16_first(w, n); }
};
struct Bf16Row : PlainRow<float> {
  using Stored = uint16_t;
  static VF load(const Stored* w, int, int p) { return load_bf16(w + p * kLanes<T>); }
  static VF load_tail(const Stored* w, int, int p, ptrdiff_t n) { return load_bf16_first(w + p * kLanes<T>, n - p * kLanes<T>); }
  static VF load_columns(const Stored* w) { return load_bf16(w); }
  static VF load_columns_tail(const Stored* w, ptrdiff_t n) { return load_bf16_first(w, n); }
};

// bfloat16 x bfloat16 without the instruction: lane j takes elements 2j + 1 and then 2j of each 32, as `vdpbf16ps` does.
struct Bf16PairRow : PlainRow<float> {
  using Stored = uint16_t;
  static constexpr int kStep = 32, kHalves = 2;
  static VF load(const Stored* w, int half, int p) {
    const Stored* at = w + 2 * p * kLanes<T>;
    return half == 0 ? load_bf16_odd(at) : load_bf16_even(at);
  }
  static VF load_tail(const Stored* w, int half, int p, ptrdiff_t n) {
    const Stored* at = w + 2 * p * kLanes<T>;
    const ptrdiff_t left = n - 2 * p * kLanes<T>;
    return half == 0 ? load_bf16_odd_first(at, left) : load_bf16_even_first(at, left);
  }
  static VF load_columns(const Stored* w) { return load_bf16(w); }
  static VF load_columns_tail(const Stored* w, ptrdiff_t n) { return load_bf16_first(w, n); }
  static VF load_hidden(const Hidden* h, int half, int p) { return lmhead::load(h + half * 16 + p * kLanes<T>); }
};

// With the instruction.
template <class Dot>
struct Bf16DotRow : PlainRow<float> {
  using Stored = uint16_t;
  using Hidden = uint16_t;
  using Operand = typename Dot::Pairs;
  static constexpr int kStep = 32;
  static Operand load(const Stored* w, int, int) { return Dot::load(w); }
  static Operand load_tail(const Stored* w, int, int, ptrdiff_t n) { return Dot::load_first(w, n); }
  static Operand load_hidden(const Hidden* h, int, int) { return Dot::load(h); }
  static VF multiply_add(Operand h, Operand w, VF sum) { return Dot::multiply_add(h, w, sum); }
};

}  // namespace
}  // namespace lmhead
