// The second pass of softmax and log-softmax over a whole row: exps or logits in cache go to the output, past the caches
// where the output is large.
// It knows rows; it refuses to know threads and the sums it is given.
#pragma once

#include "kernels/exp.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

// Elements up to the first 64-byte boundary of `out`, where streaming stores can begin.
template <class T>
inline int64_t up_to_line(const T* out, int64_t n) {
  const uintptr_t past = reinterpret_cast<uintptr_t>(out) % 64;
  const int64_t first = past == 0 ? 0 : static_cast<int64_t>((64 - past) / sizeof(T));
  return first < n ? first : n;
}

// Writes registers of results, and asks for what is read next at the same pace.
template <class T, bool streaming>
struct Pen {
  const RowOut<T>& out;

  void put(int64_t i, Vector<T> x) const {
    if (streaming) {
      stream(out.data + i, x);
      if (out.ahead) prefetch_l2(static_cast<const T*>(out.ahead) + i);
    } else {
      store(out.data + i, x);
    }
  }
};

template <class T, bool streaming>
inline void scale_exps_as(const T* exps, const T* factors, T normaliser, const RowOut<T>& out) {
  constexpr int lanes = kLanes<T>;
  constexpr T smallest = sizeof(T) == 4 ? T(0x1p-126) : T(0x1p-1022);
  const Pen<T, streaming> pen{out};
  const int64_t n = out.n;
  const auto factor_of = [&](int64_t block) {
    const T f = factors[block] * normaliser;
    return f < smallest ? T(0) : f;
  };
  int64_t i = streaming ? up_to_line(out.data, n) : 0;
  for (int64_t head = 0; head < i; ++head) out.data[head] = exps[head] * factor_of(0);
  for (int64_t block = 0; i < n; ++block) {
    const int64_t end = (block + 1) * kBlockIds < n ? (block + 1) * kBlockIds : n;
    const T factor = factor_of(block);
    const Vector<T> f = broadcast(factor);
    for (; i + lanes <= end; i += lanes) pen.put(i, mul(load(exps + i), f));
    if (i >= end) continue;
    // A register that reaches into the next block, or past the end of the row.
    const Vector<T> both = select(first_lanes(end - i, exps), f, broadcast(end < n ? factor_of(block + 1) : factor));
    if (i + lanes <= n) pen.put(i, mul(load(exps + i), both));
    else store_first(out.data + i, n - i, mul(load_first(exps + i, n - i, T(0)), both));
    i += lanes;
  }
}

template <class T>
void scale_exps(const T* exps, const T* factors, T normaliser, const RowOut<T>& out) {
  if (!out.streaming) return scale_exps_as<T, false>(exps, factors, normaliser, out);
  scale_exps_as<T, true>(exps, factors, normaliser, out);
  stream_fence();
}

template <class T, bool streaming, bool scaled>
inline void shift_logits_as(const T* z, T max, T inverse_temperature, T log_sum, const RowOut<T>& out) {
  constexpr int lanes = kLanes<T>;
  const Pen<T, streaming> pen{out};
  const int64_t n = out.n;
  const auto shift = [&](Vector<T> x) {
    x = sub(x, broadcast(max));
    if (scaled) x = mul(x, broadcast(inverse_temperature));
    return sub(x, broadcast(log_sum));
  };
  const int64_t head = streaming ? up_to_line(out.data, n) : 0;
  int64_t i = 0;
  for (; i < head; i += lanes) store_first(out.data + i, head - i, shift(load_first(z + i, head - i, T(0))));
  for (i = head; i + lanes <= n; i += lanes) pen.put(i, shift(load(z + i)));
  if (i < n) store_first(out.data + i, n - i, shift(load_first(z + i, n - i, T(0))));
}

template <class T>
void shift_logits(const T* z, T max, T inverse_temperature, T log_sum, const RowOut<T>& out) {
  const bool scaled = inverse_temperature != T(1);
  if (out.streaming) {
    if (scaled) shift_logits_as<T, true, true>(z, max, inverse_temperature, log_sum, out);
    else shift_logits_as<T, true, false>(z, max, inverse_temperature, log_sum, out);
    stream_fence();
  } else if (scaled) {
    shift_logits_as<T, false, true>(z, max, inverse_temperature, log_sum, out);
  } else {
    shift_logits_as<T, false, false>(z, max, inverse_temperature, log_sum, out);
  }
}

}  // namespace
}  // namespace lmhead
