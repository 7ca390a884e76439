// How a result of rows x panels is cut into tasks: blocks of rows x groups of panels.
// It knows what a task costs; it refuses to know what it computes.
#pragma once

#include <algorithm>

#include "core/buffer.hpp"

namespace lmhead {

class Cut {
 public:
  // The cut that should end first. A task takes as long as its rows and panels; packing a panel costs as much as a few rows more,
  // reading the coefficients as much as a part of a panel. Of equal ones that with the fewest tasks.
  Cut(int64_t n_rows, int64_t n_panels, int64_t most_rows, int64_t most_panels, int threads) : n_rows_(n_rows), n_panels_(n_panels) {
    const int64_t least_groups = ceil_div(n_panels, most_panels);
    double least = 0;
    for (int64_t blocks = ceil_div(n_rows, most_rows);; ++blocks) {
      const int64_t rows = round_up(ceil_div(n_rows, blocks), kTileRows), n_blocks = ceil_div(n_rows, rows);
      for (int64_t groups = least_groups; groups <= n_panels; ++groups) {
        // One round of tasks after the other, the greater groups first.
        const int64_t greater = ceil_div(n_panels % groups * n_blocks, threads), rounds = ceil_div(groups * n_blocks, threads);
        const double panels = double(n_panels / groups * rounds + greater) + kReadingPanels * double(rounds);
        const double time = panels * (double(rows) + kPackingRows);
        if (least != 0 && time >= least) continue;
        least = time;
        rows_ = rows;
        groups_ = groups;
      }
      if (rows <= 2 * kTileRows || blocks * least_groups >= 8 * threads) return;
    }
  }

  int64_t n_tasks() const { return groups_ * n_blocks(); }
  // Greater groups first, blocks of rows of one group side by side.
  int64_t first_row(int64_t task) const { return task % n_blocks() * rows_; }
  int64_t n_rows(int64_t task) const { return std::min(rows_, n_rows_ - first_row(task)); }
  int64_t first_panel(int64_t task) const { return first_panel_of(task / n_blocks()); }
  int64_t n_panels(int64_t task) const { return first_panel_of(task / n_blocks() + 1) - first_panel(task); }

 private:
  static constexpr int64_t kTileRows = 6;  // of the register tile of every ISA that has one
  static constexpr double kPackingRows = 12, kReadingPanels = 0.1;
  int64_t n_blocks() const { return ceil_div(n_rows_, rows_); }
  int64_t first_panel_of(int64_t group) const { return group * (n_panels_ / groups_) + std::min(group, n_panels_ % groups_); }

  int64_t n_rows_, n_panels_;
  int64_t rows_ = 0, groups_ = 0;
};

}  // namespace lmhead
