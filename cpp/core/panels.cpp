#include "core/panels.hpp"

#include <algorithm>

namespace lmhead {

Panels::Panels(const KernelTable& table, const Rows& rows, ContractionKind kind) : table_(table), rows_(rows), kind_(kind) {
  source_ = kind == ContractionKind::bf16      ? PanelSource::bf16_pairs
            : rows.dtype == DType::float64     ? PanelSource::f64
            : rows.dtype == DType::float16     ? PanelSource::f16
            : rows.dtype == DType::bfloat16    ? PanelSource::bf16
                                               : PanelSource::f32;
  columns_contiguous_ = kind != ContractionKind::f64 && !rows.swapped && !rows.contiguous() && rows.offsets.empty() &&
                        rows.row_stride == item_size(rows.dtype);
}

void Panels::pack(int64_t panel, int64_t first_row, int64_t n_rows, void* to, PanelScratch& scratch) const {
  if (columns_contiguous_) return pack_columns(panel, first_row, n_rows, to, scratch);
  const int64_t first = panel * columns(), n_columns = std::min(columns(), rows_.width - first);
  const void** pointers = scratch.pointers.reserve(n_rows);
  if (rows_.contiguous()) {
    for (int64_t k = 0; k < n_rows; ++k) pointers[k] = rows_.row(first_row + k) + first * item_size(rows_.dtype);
  } else {
    const ptrdiff_t run = n_columns * item_size(rows_.dtype);
    char* gathered = scratch.gathered.reserve(n_rows * run);
    for (int64_t k = 0; k < n_rows; ++k) {
      gather_elements(rows_.row(first_row + k) + first * rows_.element_stride, rows_.element_stride, n_columns, rows_.dtype, rows_.swapped,
                      gathered + k * run);
      pointers[k] = gathered + k * run;
    }
  }
  table_.pack_panel[static_cast<int>(source_)]({pointers, n_rows, n_columns, to});
}

// A column of these rows is a run in memory. As float32, or as pairs of bfloat16 that are neighbours there already, its words
// become one column of the lines.
void Panels::pack_columns(int64_t panel, int64_t first_row, int64_t n_rows, void* to, PanelScratch& scratch) const {
  const int64_t first = panel * columns(), n_columns = std::min(columns(), rows_.width - first);
  const bool pairs = kind_ == ContractionKind::bf16;
  const int64_t n_lines = ceil_div(n_rows, rows_per_term());
  const ptrdiff_t run = n_lines * 4;
  char* runs = scratch.gathered.reserve(n_columns * run);
  for (int64_t c = 0; c < n_columns; ++c) {
    if (pairs && n_rows % 2 != 0) std::memset(runs + (c + 1) * run - 4, 0, 4);
    convert_run(table_, rows_.row(first_row) + (first + c) * rows_.element_stride, n_rows, rows_.dtype,
                pairs ? RowLayout::stored : RowLayout::wide, runs + c * run);
  }
  if (n_columns < columns()) std::memset(to, 0, static_cast<size_t>(n_lines * kPanelBytes));
  table_.transpose_words(reinterpret_cast<const uint32_t*>(runs), n_lines, n_columns, n_lines, static_cast<uint32_t*>(to), kPanelBytes / 4);
}

}  // namespace lmhead
