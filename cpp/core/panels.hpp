// Rows of any storage as the panels that contractions read: stretches of 256 bytes of columns, one line a term.
// It knows layouts and which packing kernel fits; it refuses to know what the rows are multiplied with.
#pragma once

#include "core/rows.hpp"

namespace lmhead {

struct PanelScratch {
  Buffer<char> gathered;
  Buffer<const void*> pointers;
};

class Panels {
 public:
  // Rows of float64 for ContractionKind::f64, of bfloat16 for ::bf16; they must outlive this object.
  Panels(const KernelTable& table, const Rows& rows, ContractionKind kind);

  // Columns of a line, and rows a term stands for.
  int64_t columns() const { return kPanelBytes / (kind_ == ContractionKind::f64 ? 8 : 4); }
  int64_t rows_per_term() const { return kind_ == ContractionKind::bf16 ? 2 : 1; }
  int64_t n_panels() const { return ceil_div(rows_.width, columns()); }

  // Panel `panel` of rows [first_row, first_row + n_rows): ceil(n_rows / rows_per_term()) lines, absent elements 0.
  void pack(int64_t panel, int64_t first_row, int64_t n_rows, void* to, PanelScratch& scratch) const;

 private:
  void pack_columns(int64_t panel, int64_t first_row, int64_t n_rows, void* to, PanelScratch& scratch) const;

  const KernelTable& table_;
  const Rows& rows_;
  ContractionKind kind_;
  PanelSource source_;
  bool columns_contiguous_;  // rows stored as (D, V), to be transposed by words
};

}  // namespace lmhead
