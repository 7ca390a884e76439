// Some neighbouring rows as float32 or float64, read so that each cache line comes once, also where a weight is stored as (D, V).
// It knows rows; it refuses to know what they are for.
#pragma once

#include "core/read.hpp"

namespace lmhead {

// Rows [first, first + n) as T: where they lie, or in `to`, [n] rows of `width`.
template <class T>
void read_block(const KernelTable& table, const Rows& rows, int64_t first, int64_t n, T* to, Buffer<char>& temporary, const T** found) {
  const bool columns = rows.row_stride == item_size(rows.dtype) && rows.offsets.empty() && !rows.swapped && !rows.is_quantized();
  if (!columns || rows.contiguous()) return Reader<T>(table, rows).read_rows(first, n, to, temporary, found);
  T* column = reinterpret_cast<T*>(temporary.reserve(n * ptrdiff_t(sizeof(T))));
  for (int64_t d = 0; d < rows.width; ++d) {
    convert_run(table, rows.row(first) + d * rows.element_stride, n, rows.dtype, RowLayout::wide, column);
    for (int64_t i = 0; i < n; ++i) to[i * rows.width + d] = column[i];
  }
  for (int64_t i = 0; i < n; ++i) found[i] = to + i * rows.width;
}

}  // namespace lmhead
