#include "core/contraction.hpp"

#include <algorithm>

#include "core/cut.hpp"
#include "core/parallel.hpp"

namespace lmhead {
namespace {

// Terms of a chain that are taken together: one load and store of 24 accumulators for 384 terms is 1 % of a tile's time, and three
// panels of so many lines are 288 KiB of a 1 MiB L2. Beside them stand a task's results (198 KiB) and what is fetched of the next
// lines' source. 256 terms were 1 % slower, 512 the same; 2 to 4 panels made no difference at 2 bytes or 4 an element.
constexpr int64_t kTermsPerBlock = 384;
constexpr int64_t kMostPanels = 3;
// 44 register tiles: a chunk of 256 tokens is one block of rows.
constexpr int64_t kMostRows = 264;

// Rows of hidden that one task packs: even, for pairs.
constexpr int64_t kRowsPerPacking = 16;

int64_t term_bytes(ContractionKind kind) { return kind == ContractionKind::f64 ? 8 : 4; }

}  // namespace

template <class T>
OverIds<T>::OverIds(const KernelTable& table, const Rows& weight, ContractionKind kind)
    : table_(table), weight_(weight), kind_(kind), panels_(table, weight, kind) {}

template <class T>
void OverIds<T>::run(const Coefficients& g, int64_t n_rows, T* const* out_rows, int threads) {
  const int64_t n_panels = panels_.n_panels();
  if (n_rows == 0 || n_panels == 0 || weight_.n_rows == 0) return;
  if (double(n_rows) * double(weight_.n_rows) * double(weight_.width) < kSerialWork) threads = 1;
  const Cut cut(n_rows, n_panels, kMostRows, kMostPanels, threads);
  std::vector<Scratch> scratch(static_cast<size_t>(threads));  // gone before the next chunk's logits are made
  run_tasks(threads, cut.n_tasks(), [&](int worker, int64_t i) {
    const Task task{cut.first_row(i), cut.n_rows(i), cut.first_panel(i), cut.n_panels(i)};
    run_task(g, task, out_rows, scratch[static_cast<size_t>(worker)]);
  });
}

template <class T>
void OverIds<T>::run_task(const Coefficients& g, const Task& task, T* const* out_rows, Scratch& scratch) const {
  const int64_t per_term = panels_.rows_per_term(), block = kTermsPerBlock * per_term;
  const int64_t columns = task.n_panels * panels_.columns(), first_column = task.first_panel * panels_.columns();
  const size_t used = sizeof(T) * static_cast<size_t>(std::min(columns, weight_.width - first_column));
  const ptrdiff_t out_stride = task.n_panels * kPanelBytes;
  char* panels = scratch.panels.reserve(task.n_panels * kTermsPerBlock * kPanelBytes);
  char* out = scratch.out.reserve(task.n_rows * out_stride);
  for (int64_t r = 0; r < task.n_rows; ++r) {
    std::memcpy(out + r * out_stride, out_rows[task.first_row + r] + first_column, used);
    std::memset(out + r * out_stride + used, 0, static_cast<size_t>(out_stride) - used);
  }
  const char* rows = g.data + task.first_row * g.row_stride;
  for (int64_t id = 0; id < weight_.n_rows; id += block) {
    const int64_t ids = std::min(block, weight_.n_rows - id), whole = ids / per_term;
    const ptrdiff_t panel_stride = ceil_div(ids, per_term) * kPanelBytes;
    panels_.pack({task.first_panel, task.n_panels, id, ids}, panels, panel_stride, scratch.packing);
    Contraction c;
    c.coefficients = rows + id / per_term * term_bytes(kind_);
    c.coefficient_stride = g.row_stride;
    c.panels = panels;
    c.panel_stride = panel_stride;
    c.n_terms = whole;
    c.n_rows = task.n_rows;
    c.n_columns = columns;
    c.out = out;
    c.out_stride = out_stride;
    c.from_zero = false;
    c.ahead = panels_.ahead({task.first_panel, task.n_panels, id + ids, std::min(block, weight_.n_rows - id - ids)});
    table_.contract_rows[static_cast<int>(kind_)](c);
    if (whole * per_term == ids) continue;
    // The last of an odd number of ids: its neighbour in memory, if any, is not its partner.
    uint32_t* last = scratch.last.reserve(task.n_rows);
    for (int64_t r = 0; r < task.n_rows; ++r) {
      last[r] = 0;
      std::memcpy(last + r, c.coefficients + r * g.row_stride + whole * 4, 2);
    }
    c.coefficients = reinterpret_cast<const char*>(last);
    c.coefficient_stride = 4;
    c.panels += whole * kPanelBytes;
    c.n_terms = 1;
    c.ahead = {};
    table_.contract_rows[static_cast<int>(kind_)](c);
  }
  for (int64_t r = 0; r < task.n_rows; ++r) std::memcpy(out_rows[task.first_row + r] + first_column, out + r * out_stride, used);
}

template <class T>
OverTokens<T>::OverTokens(const KernelTable& table, ContractionKind kind, int64_t width) : table_(table), kind_(kind), width_(width) {}

template <class T>
void OverTokens<T>::pack(const Rows& hidden, int64_t first_row, int64_t n_rows, int threads) {
  const Panels panels(table_, hidden, kind_);
  n_terms_ = ceil_div(n_rows, panels.rows_per_term());
  panels_.reserve(panels.n_panels() * n_terms_ * kPanelBytes);
  std::vector<PanelScratch> scratch(static_cast<size_t>(threads));
  run_tasks(threads, ceil_div(n_rows, kRowsPerPacking), [&](int worker, int64_t task) {
    const int64_t row = task * kRowsPerPacking;
    panels.pack({0, panels.n_panels(), first_row + row, std::min(kRowsPerPacking, n_rows - row)},
                panels_.get() + row / panels.rows_per_term() * kPanelBytes, n_terms_ * kPanelBytes, scratch[static_cast<size_t>(worker)]);
  });
}

template <class T>
void OverTokens<T>::run(const void* block, int64_t n_ids, T* out, ptrdiff_t out_stride, bool from_zero) const {
  // Equal parts of many tokens, at least one: no tokens make zeros.
  const int64_t n_parts = std::max<int64_t>(1, ceil_div(n_terms_, kTermsPerBlock));
  for (int64_t part = 0; part < n_parts; ++part) {
    const int64_t first = part * n_terms_ / n_parts, last = (part + 1) * n_terms_ / n_parts;
    Contraction c;
    c.coefficients = static_cast<const char*>(block) + first * kBlockIds * term_bytes(kind_);
    c.coefficient_stride = 0;
    c.panels = panels_.get() + first * kPanelBytes;
    c.panel_stride = n_terms_ * kPanelBytes;
    c.n_terms = last - first;
    c.n_rows = n_ids;
    c.n_columns = width_;
    c.out = reinterpret_cast<char*>(out);
    c.out_stride = out_stride * static_cast<ptrdiff_t>(sizeof(T));
    c.from_zero = from_zero && part == 0;
    c.ahead = {};
    table_.contract_block[static_cast<int>(kind_)](c);
  }
}

template class OverIds<float>;
template class OverIds<double>;
template class OverTokens<float>;
template class OverTokens<double>;

}  // namespace lmhead
