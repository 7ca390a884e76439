// Panels of a contraction: columns of rows as lines of kPanelBytes, float32 wide or in pairs of bfloat16. Rows are read one after
// the other over all panels, in runs as long as they come.
// It knows lines; it refuses to know whether the rows are weights or hidden states.
#pragma once

#include "kernels/rows.inl.hpp"
#include "kernels/table.hpp"

namespace lmhead {
namespace {

template <class Row>
void pack_panels(const PackPanels& pack) {
  using T = typename Row::T;
  using Stored = typename Row::Stored;
  constexpr int64_t columns = kPanelBytes / sizeof(T);
  constexpr int vectors = columns / kLanes<T>;
  for (int64_t k = 0; k < pack.n_rows; ++k) {
    const Stored* row = static_cast<const Stored*>(pack.rows[k]);
    char* line = pack.out + k * kPanelBytes;
    int64_t c = 0;
    for (; c + columns <= pack.n_columns; c += columns, line += pack.panel_stride) {
      T* out = reinterpret_cast<T*>(line);
      LMHEAD_UNROLL
      for (int v = 0; v < vectors; ++v) store(out + v * kLanes<T>, Row::load_columns(row + c + v * kLanes<T>));
    }
    if (c == pack.n_columns) continue;
    T* out = reinterpret_cast<T*>(line);
    for (int v = 0; v < vectors; ++v) {
      const int64_t at = c + v * kLanes<T>, left = pack.n_columns - at;
      store(out + v * kLanes<T>, left > 0 ? Row::load_columns_tail(row + at, left) : broadcast(T(0)));
    }
  }
}

// Columns [c, end) of a line of pairs, one by one; `odd` may be null.
inline void pair_columns(const uint16_t* even, const uint16_t* odd, int64_t c, int64_t end, uint32_t* out) {
  for (; c < end; ++c, ++out) {
    uint16_t low, high = 0;
    __builtin_memcpy(&low, even + c, 2);
    if (odd) __builtin_memcpy(&high, odd + c, 2);
    *out = uint32_t{low} | uint32_t{high} << 16;
  }
}

inline void pack_pairs(const PackPanels& pack) {
  constexpr int64_t columns = kPanelBytes / 4;
  for (int64_t k = 0; k < pack.n_rows; k += 2) {
    const uint16_t* even = static_cast<const uint16_t*>(pack.rows[k]);
    const uint16_t* odd = k + 1 < pack.n_rows ? static_cast<const uint16_t*>(pack.rows[k + 1]) : nullptr;
    char* line = pack.out + k / 2 * kPanelBytes;
    int64_t c = 0;
    if (odd)
      for (; c + columns <= pack.n_columns; c += columns, line += pack.panel_stride) {
        uint32_t* out = reinterpret_cast<uint32_t*>(line);
        LMHEAD_UNROLL
        for (int v = 0; v < columns; v += kPairColumns) pair_u16(even + c + v, odd + c + v, out + v);
      }
    for (; c < pack.n_columns; c += columns, line += pack.panel_stride) {
      const int64_t end = c + columns < pack.n_columns ? c + columns : pack.n_columns;
      uint32_t* out = reinterpret_cast<uint32_t*>(line);
      pair_columns(even, odd, c, end, out);
      for (int64_t z = end - c; z < columns; ++z) out[z] = 0;
    }
  }
}

}  // namespace
}  // namespace lmhead
