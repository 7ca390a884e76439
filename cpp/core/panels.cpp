#include "core/panels.hpp"

#include <algorithm>

namespace lmhead {

Panels::Panels(const KernelTable& table, const Rows& rows, ContractionKind kind) : table_(table), rows_(rows), kind_(kind) {
  source_ = kind == ContractionKind::bf16      ? PanelSource::bf16_pairs
            : rows.dtype == DType::float64     ? PanelSource::f64
            : rows.dtype == DType::float16     ? PanelSource::f16
            : rows.dtype == DType::bfloat16    ? PanelSource::bf16
                                               : PanelSource::f32;
  columns_contiguous_ = kind != ContractionKind::f64 && !rows.is_quantized() && !rows.swapped && !rows.contiguous() && rows.offsets.empty() &&
                        rows.row_stride == item_size(rows.dtype);
}

int64_t Panels::n_columns(const Part& part) const {
  return std::min(part.n_panels * columns(), rows_.width - first_column(part));
}

void Panels::pack(const Part& part, char* to, ptrdiff_t panel_stride, PanelScratch& scratch) const {
  if (columns_contiguous_) return pack_columns(part, to, panel_stride, scratch);
  const int64_t count = n_columns(part), item = item_size(rows_.dtype);
  const void** pointers = scratch.pointers.reserve(part.n_rows);
  char* gathered = rows_.contiguous() ? nullptr : scratch.gathered.reserve(part.n_rows * count * item);
  for (int64_t k = 0; k < part.n_rows; ++k) {
    if (rows_.is_quantized()) {
      pointers[k] = gathered + k * count * item;
      table_.dequantize(rows_.quantized, part.first_row + k, first_column(part), count, reinterpret_cast<float*>(gathered) + k * count);
      continue;
    }
    const char* row = rows_.row(part.first_row + k) + first_column(part) * rows_.element_stride;
    pointers[k] = row;
    if (!gathered) continue;
    gather_elements(row, rows_.element_stride, count, rows_.dtype, rows_.swapped, gathered + k * count * item);
    pointers[k] = gathered + k * count * item;
  }
  table_.pack_panels[static_cast<int>(source_)]({pointers, part.n_rows, count, to, panel_stride});
}

Ahead Panels::ahead(const Part& part) const {
  const bool by_rows = rows_.contiguous() && rows_.offsets.empty();
  if (part.n_rows <= 0 || !(by_rows || columns_contiguous_)) return {};
  const int64_t n_runs = by_rows ? part.n_rows : n_columns(part), run = by_rows ? n_columns(part) : part.n_rows;
  const int64_t lines = ceil_div(run * item_size(rows_.dtype), static_cast<int64_t>(kCacheLine));
  return {rows_.row(part.first_row) + first_column(part) * rows_.element_stride, by_rows ? rows_.row_stride : rows_.element_stride, lines,
          lines * n_runs};
}

// A column of these rows is a run in memory. As float32, or as pairs of bfloat16 that are neighbours there already, its words
// become one column of a panel.
void Panels::pack_columns(const Part& part, char* to, ptrdiff_t panel_stride, PanelScratch& scratch) const {
  const bool pairs = kind_ == ContractionKind::bf16;
  const int64_t n_lines = ceil_div(part.n_rows, rows_per_term()), end = n_columns(part);
  const ptrdiff_t run = n_lines * 4;
  char* runs = scratch.gathered.reserve(columns() * run);
  const char* data = rows_.row(part.first_row) + first_column(part) * rows_.element_stride;
  for (int64_t first = 0; first < end; first += columns(), to += panel_stride) {
    const int64_t count = std::min(columns(), end - first);
    for (int64_t c = 0; c < count; ++c) {
      char* words = runs + c * run;
      if (pairs && part.n_rows % 2 != 0) std::memset(words + run - 4, 0, 4);
      convert_run(table_, data + (first + c) * rows_.element_stride, part.n_rows, rows_.dtype, pairs ? RowLayout::stored : RowLayout::wide, words);
    }
    if (count < columns()) std::memset(to, 0, static_cast<size_t>(n_lines * kPanelBytes));
    table_.transpose_words(reinterpret_cast<const uint32_t*>(runs), n_lines, count, n_lines, reinterpret_cast<uint32_t*>(to), kPanelBytes / 4);
  }
}

}  // namespace lmhead
