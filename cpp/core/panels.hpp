// Rows of any storage as the panels that contractions read: 256 bytes of columns a line, one line a term.
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

  // Some rows of neighbouring panels.
  struct Part {
    int64_t first_panel, n_panels;
    int64_t first_row, n_rows;
  };

  // Columns of a line, and rows that a term stands for.
  int64_t columns() const { return kPanelBytes / (kind_ == ContractionKind::f64 ? 8 : 4); }
  int64_t rows_per_term() const { return kind_ == ContractionKind::bf16 ? 2 : 1; }
  int64_t n_panels() const { return ceil_div(rows_.width, columns()); }

  // ceil(n_rows / rows_per_term()) lines of each panel, panel_stride bytes apart; absent elements are 0.
  void pack(const Part& part, char* to, ptrdiff_t panel_stride, PanelScratch& scratch) const;
  // The memory that pack() of these reads, where it lies in runs that are worth fetching ahead.
  Ahead ahead(const Part& part) const;

 private:
  // A part's columns.
  int64_t first_column(const Part& part) const { return part.first_panel * columns(); }
  int64_t n_columns(const Part& part) const;
  void pack_columns(const Part& part, char* to, ptrdiff_t panel_stride, PanelScratch& scratch) const;

  const KernelTable& table_;
  const Rows& rows_;
  ContractionKind kind_;
  PanelSource source_;
  bool columns_contiguous_;  // rows stored as (D, V), to be transposed by words
};

}  // namespace lmhead
