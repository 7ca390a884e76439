// The second pass of softmax and log-softmax: exps or logits in cache go to the output, past the caches where it is large.
// It knows rows and parts of them; it refuses to know threads and the sums it is given.
#pragma once

#include "kernels/exp.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

template <class T, bool streaming>
inline void put(T* out, Vector<T> x) {
  if (streaming) stream(out, x);
  else store(out, x);
}

// The element at which streaming stores can begin: the first one of a part, or of the row's first whole cache line.
template <class T, bool streaming>
inline int64_t first_of_line(const RowPart<T>& out) {
  const uintptr_t past = reinterpret_cast<uintptr_t>(out.data) % 64;
  if (!streaming || out.first > 0 || past == 0) return out.first;
  const int64_t line = static_cast<int64_t>((64 - past) / sizeof(T));
  return line < out.last ? line : out.last;
}

template <class T, bool streaming>
inline void scale_exps_as(const T* exps, const T* factors, T normaliser, const RowPart<T>& out) {
  constexpr int lanes = kLanes<T>;
  constexpr T smallest = sizeof(T) == 4 ? T(0x1p-126) : T(0x1p-1022);
  const auto factor_of = [&](int64_t block) {
    const T f = factors[block] * normaliser;
    return f < smallest ? T(0) : f;
  };
  int64_t i = first_of_line<T, streaming>(out);
  for (int64_t head = out.first; head < i; ++head) out.data[head] = exps[head] * factor_of(0);
  for (int64_t block = i / kBlockIds; i < out.last; ++block) {
    const int64_t end = (block + 1) * kBlockIds < out.last ? (block + 1) * kBlockIds : out.last;
    const T factor = factor_of(block);
    const Vector<T> f = broadcast(factor);
    for (; i + lanes <= end; i += lanes) put<T, streaming>(out.data + i, mul(load(exps + i), f));
    if (i >= end) continue;
    // A register that reaches into the next block, or past the end of the row.
    const Vector<T> both = select(first_lanes(end - i, exps), f, broadcast(end < out.n ? factor_of(block + 1) : factor));
    if (i + lanes <= out.last) put<T, streaming>(out.data + i, mul(load(exps + i), both));
    else store_first(out.data + i, out.last - i, mul(load_first(exps + i, out.last - i, T(0)), both));
    i += lanes;
  }
}

template <class T>
void scale_exps(const T* exps, const T* factors, T normaliser, const RowPart<T>& out) {
  if (out.streaming) scale_exps_as<T, true>(exps, factors, normaliser, out);
  else scale_exps_as<T, false>(exps, factors, normaliser, out);
}

template <class T, bool streaming, bool scaled>
inline void shift_logits_as(const T* z, T max, T inverse_temperature, T log_sum, const RowPart<T>& out) {
  constexpr int lanes = kLanes<T>;
  const auto shift = [&](Vector<T> x) { return sub(below_max<T, scaled>(x, max, inverse_temperature), broadcast(log_sum)); };
  const auto shift_first = [&](int64_t i, int64_t n) { store_first(out.data + i, n, shift(load_first(z + i, n, T(0)))); };
  const int64_t line = first_of_line<T, streaming>(out);
  for (int64_t i = out.first; i < line; i += lanes) shift_first(i, line - i);
  int64_t i = line;
  for (; i + lanes <= out.last; i += lanes) put<T, streaming>(out.data + i, shift(load(z + i)));
  if (i < out.last) shift_first(i, out.last - i);
}

template <class T>
void shift_logits(const T* z, T max, T inverse_temperature, T log_sum, const RowPart<T>& out) {
  const bool scaled = inverse_temperature != T(1);
  if (out.streaming) {
    if (scaled) shift_logits_as<T, true, true>(z, max, inverse_temperature, log_sum, out);
    else shift_logits_as<T, true, false>(z, max, inverse_temperature, log_sum, out);
  } else if (scaled) {
    shift_logits_as<T, false, true>(z, max, inverse_temperature, log_sum, out);
  } else {
    shift_logits_as<T, false, false>(z, max, inverse_temperature, log_sum, out);
  }
}

}  // namespace
}  // namespace lmhead
