// Panels of a contraction: some columns of rows as lines of kPanelBytes, side by side, float32 wide or in pairs of bfloat16.
// It knows lines; it refuses to know whether the rows are weights or hidden states.
#pragma once

#include "kernels/rows.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

template <class Row>
void pack_panel(const PackPanel& pack) {
  using T = typename Row::T;
  using Stored = typename Row::Stored;
  constexpr int64_t columns = kPanelBytes / sizeof(T);
  constexpr int vectors = columns / kLanes<T>;
  T* out = static_cast<T*>(pack.out);
  if (pack.n_columns >= columns) {
    for (int64_t k = 0; k < pack.n_rows; ++k, out += columns) {
      const Stored* row = static_cast<const Stored*>(pack.rows[k]);
      LMHEAD_UNROLL
      for (int v = 0; v < vectors; ++v) store(out + v * kLanes<T>, Row::load_columns(row + v * kLanes<T>));
    }
    return;
  }
  for (int64_t k = 0; k < pack.n_rows; ++k, out += columns)
    for (int v = 0; v < vectors; ++v) {
      const int64_t left = pack.n_columns - v * kLanes<T>;
      // No pointer past the end of a row is formed.
      store(out + v * kLanes<T>, left > 0 ? Row::load_columns_tail(static_cast<const Stored*>(pack.rows[k]) + v * kLanes<T>, left) : broadcast(T(0)));
    }
}

// Columns [first, n) one by one.
inline void pair_columns(const uint16_t* even, const uint16_t* odd, int64_t first, int64_t n, uint32_t* words) {
  for (int64_t c = first; c < n; ++c) {
    uint16_t low, high = 0;
    __builtin_memcpy(&low, even + c, 2);
    if (odd) __builtin_memcpy(&high, odd + c, 2);
    words[c] = uint32_t{low} | uint32_t{high} << 16;
  }
}

inline void pack_pairs(const PackPanel& pack) {
  constexpr int64_t columns = kPanelBytes / 4;
  constexpr int lanes = kLanes<float>;
  uint32_t* out = static_cast<uint32_t*>(pack.out);
  const int64_t n = pack.n_columns < columns ? pack.n_columns : columns;
  for (int64_t k = 0; k < pack.n_rows; k += 2, out += columns) {
    const uint16_t* even = static_cast<const uint16_t*>(pack.rows[k]);
    const uint16_t* odd = k + 1 < pack.n_rows ? static_cast<const uint16_t*>(pack.rows[k + 1]) : nullptr;
    int64_t c = 0;
    if (odd) for (; c + lanes <= n; c += lanes) pair_u16(even + c, odd + c, out + c);
    pair_columns(even, odd, c, n, out);
    for (c = n; c < columns; ++c) out[c] = 0;
  }
}

}  // namespace
}  // namespace lmhead
