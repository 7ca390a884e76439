// Some neighbouring rows as float32, read so that each cache line comes once, also where a weight is stored as (D, V).
// It knows rows; it refuses to know what they are for.
#pragma once

#include "core/read.hpp"

namespace lmhead {

// Rows [first, first + n) of anything but float64: where they lie, or in `to`, [n] rows of `width`.
inline void read_block(const KernelTable& table, const Rows& rows, int64_t first, int64_t n, float* to, Buffer<char>& temporary,
                       const float** found) {
  const ptrdiff_t item = item_size(rows.dtype);
  if (rows.contiguous() || rows.swapped || rows.row_stride != item || !rows.offsets.empty())
    return Reader<float>(table, rows).read_rows(first, n, to, temporary, found);
  auto* wide = reinterpret_cast<float*>(temporary.reserve(n * 4));
  for (int64_t d = 0; d < rows.width; ++d) {
    convert_run(table, rows.row(first) + d * rows.element_stride, n, rows.dtype, RowLayout::wide, wide);
    for (int64_t i = 0; i < n; ++i) to[i * rows.width + d] = wide[i];
  }
  for (int64_t i = 0; i < n; ++i) found[i] = to + i * rows.width;
}

}  // namespace lmhead
