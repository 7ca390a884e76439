// Rows of numbers as a caller holds them (any strides, alignment, byte order) and as kernels want them.
// It knows how to read; it refuses to know whether the rows are hidden states, weights or logits.
#pragma once

#include <cstring>
#include <vector>

#include "core/buffer.hpp"
#include "core/dtype.hpp"
#include "kernels/table.hpp"

namespace lmhead {

struct Rows {
  const char* data = nullptr;
  DType dtype = DType::float32;
  bool swapped = false;              // the other byte order
  int64_t n_rows = 0;
  int64_t width = 0;
  ptrdiff_t row_stride = 0;          // bytes; unused where offsets are given
  ptrdiff_t element_stride = 0;      // bytes
  std::vector<ptrdiff_t> offsets;    // bytes, one per row, for leading dimensions that are no single stride
  QuantizedRows quantized{};         // or this, which then says where and how n_rows of `width` float32 values are kept

  const char* row(int64_t i) const { return data + (offsets.empty() ? i * row_stride : offsets[static_cast<size_t>(i)]); }
  bool is_quantized() const { return quantized.bits != 0; }
  bool contiguous() const { return !is_quantized() && !swapped && (width <= 1 || element_stride == item_size(dtype)); }
};

// Rows [first, first + n) of those whose numbers are given; not of quantised ones.
inline Rows chosen_rows(const Rows& all, const std::vector<int64_t>& chosen, int64_t first, int64_t n) {
  Rows rows = all;
  rows.n_rows = n;
  rows.offsets.clear();
  rows.offsets.reserve(static_cast<size_t>(n));
  for (int64_t i = first; i < first + n; ++i) rows.offsets.push_back(all.row(chosen[static_cast<size_t>(i)]) - all.data);
  return rows;
}

// What a kernel wants a row to be.
enum class RowLayout {
  wide,        // float32 (float64 for float64 rows), in order
  bf16_pairs,  // float32, the 16 odd and the 16 even elements of each 32
  stored,      // the elements as they are, native byte order
};

inline ptrdiff_t layout_item_size(RowLayout layout, DType dtype) {
  return dtype == DType::float64 ? 8 : layout == RowLayout::stored ? item_size(dtype) : 4;
}

template <class U>
inline void gather_elements(const char* from, ptrdiff_t stride, int64_t n, bool swapped, U* to) {
  for (int64_t i = 0; i < n; ++i) {
    U x;
    std::memcpy(&x, from + i * stride, sizeof(U));
    if (swapped) x = sizeof(U) == 8 ? U(__builtin_bswap64(x)) : sizeof(U) == 4 ? U(__builtin_bswap32(uint32_t(x))) : U(__builtin_bswap16(uint16_t(x)));
    to[i] = x;
  }
}

// Elements [first, first + n) of a strided or byte-swapped run, side by side in native order.
inline void gather_elements(const char* from, ptrdiff_t stride, int64_t n, DType dtype, bool swapped, void* to) {
  if (item_size(dtype) == 8) gather_elements(from, stride, n, swapped, static_cast<uint64_t*>(to));
  else if (item_size(dtype) == 4) gather_elements(from, stride, n, swapped, static_cast<uint32_t*>(to));
  else gather_elements(from, stride, n, swapped, static_cast<uint16_t*>(to));
}

// Neighbours of half-precision rows as words: words[i] = first[i], second[i]; zeros where there is no second.
inline void pair_elements(const char* first, const char* second, int64_t n, uint32_t* words) {
  const auto element = [](const char* from, int64_t i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    return uint32_t{bits};
  };
  if (!second)
    for (int64_t i = 0; i < n; ++i) words[i] = element(first, i);
  else
    for (int64_t i = 0; i < n; ++i) words[i] = element(first, i) | element(second, i) << 16;
}

// A contiguous native run in the layout a kernel wants; for bf16_pairs whole groups of 32 are written.
inline void convert_run(const KernelTable& table, const void* from, int64_t n, DType dtype, RowLayout layout, void* to) {
  const auto* half = static_cast<const uint16_t*>(from);
  if (n > 0 && (layout == RowLayout::stored || item_size(dtype) >= 4)) std::memcpy(to, from, static_cast<size_t>(n * item_size(dtype)));
  else if (layout == RowLayout::bf16_pairs) table.widen_bf16_pairs(half, n, static_cast<float*>(to));
  else if (dtype == DType::bfloat16) table.widen_bf16(half, n, static_cast<float*>(to));
  else table.widen_f16(half, n, static_cast<float*>(to));
}

// Elements [first, first + n) of row i; `temporary` is used for rows that are not contiguous. Quantised rows are wide only, their
// `first` a multiple of 32.
inline void copy_row(const KernelTable& table, const Rows& rows, int64_t i, int64_t first, int64_t n, RowLayout layout, void* to,
                     Buffer<char>& temporary) {
  if (rows.is_quantized()) return table.dequantize(rows.quantized, i, first, n, static_cast<float*>(to));
  const char* from = rows.row(i) + first * rows.element_stride;
  if (rows.contiguous()) return convert_run(table, from, n, rows.dtype, layout, to);
  void* run = temporary.reserve(n * item_size(rows.dtype));
  gather_elements(from, rows.element_stride, n, rows.dtype, rows.swapped, run);
  convert_run(table, run, n, rows.dtype, layout, to);
}

}  // namespace lmhead
