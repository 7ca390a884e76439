// Where results go: rows of a caller's array, any strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace lmhead {

struct Target {
  char* data = nullptr;
  int64_t n_rows = 0;
  int64_t width = 0;
  ptrdiff_t row_stride = 0;        // bytes; unused where offsets are given
  ptrdiff_t element_stride = 0;    // bytes
  bool aligned = true;             // every element is, to its size
  std::vector<ptrdiff_t> offsets;  // bytes, one per row, for leading dimensions that are no single stride

  char* row(int64_t i) const { return data + (offsets.empty() ? i * row_stride : offsets[static_cast<size_t>(i)]); }

  // Rows a kernel can write itself.
  template <class T>
  bool contiguous_rows() const { return aligned && (width <= 1 || element_stride == static_cast<ptrdiff_t>(sizeof(T))); }
  // The same with one stride from row to row.
  template <class T>
  bool plain() const { return offsets.empty() && contiguous_rows<T>(); }

  template <class T>
  void put(int64_t row_index, int64_t first, const T* values, int64_t n) const {
    char* to = row(row_index) + first * element_stride;
    for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * element_stride, values + i, sizeof(T));
  }
};

}  // namespace lmhead
