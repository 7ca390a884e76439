// How the allowed ids of some hidden rows are cut into tasks: runs of whole blocks of ids that take about as long as each other, wherever
// the allowed ids stand.
// It knows what reading a row of weights costs; it refuses to know what is computed.
#pragma once

#include <algorithm>
#include <vector>

#include "core/allowed.hpp"
#include "kernels/table.hpp"

namespace lmhead {

// A row of weights that is read for one hidden row takes as long as the register tile needs for about so many.
constexpr int64_t kRowsOfOneRead = 8;

class AllowedCut {
 public:
  // Tasks hold at most `most_ids` ids that are allowed to any of the rows (a multiple of kBlockIds), and those of a weight `width` wide.
  void cut(const Allowed& allowed, int64_t first_row, int64_t n_rows, int64_t most_ids, int64_t width, int threads) {
    const int64_t n_ids = allowed.n_ids(), n_blocks = ceil_div(n_ids, kBlockIds), n_words = allowed.n_words();
    const int64_t n_sets = allowed.shared() ? 1 : n_rows;
    ids_.assign(static_cast<size_t>(n_blocks), 0);
    costs_.assign(static_cast<size_t>(n_blocks), 0);
    const double pass = std::max(1.0, double(n_rows) / kRowsOfOneRead);
    total_cost_ = 0;
    for (int64_t block = 0; block < n_blocks; ++block) {
      const int64_t first = block * kBlockWords, last = std::min(first + kBlockWords, n_words);
      int64_t of_any = 0, of_each = 0;
      for (int64_t w = first; w < last; ++w) {
        uint32_t any = 0;
        for (int64_t r = 0; r < n_sets; ++r) {
          const uint32_t bits = allowed.words(first_row + r)[w];
          any |= bits;
          if (n_sets > 1) of_each += count_bits(bits);
        }
        of_any += count_bits(any);
      }
      const double reads = n_sets > 1 ? std::min(double(of_each), pass * double(of_any)) : pass * double(of_any);
      ids_[static_cast<size_t>(block)] = of_any;
      costs_[static_cast<size_t>(block)] = reads * double(std::max<int64_t>(1, width)) + kIdleBlockCost * double(n_rows);
      total_cost_ += costs_[static_cast<size_t>(block)];
    }
    // Eight tasks a thread, so that a late thread costs little.
    const double most_cost = total_cost_ / (8 * threads);
    first_blocks_.clear();
    int64_t ids = 0;
    double cost = 0;
    for (int64_t block = 0; block < n_blocks; ++block) {
      const auto b = static_cast<size_t>(block);
      if (block == 0 || ids + ids_[b] > most_ids || cost + costs_[b] > most_cost) {
        first_blocks_.push_back(block);
        ids = 0;
        cost = 0;
      }
      ids += ids_[b];
      cost += costs_[b];
    }
    first_blocks_.push_back(n_blocks);
    n_ids_ = n_ids;
  }

  int64_t n_tasks() const { return static_cast<int64_t>(first_blocks_.size()) - 1; }
  int64_t first_id(int64_t task) const { return first_blocks_[static_cast<size_t>(task)] * kBlockIds; }
  int64_t n_ids(int64_t task) const { return std::min(n_ids_, first_blocks_[static_cast<size_t>(task) + 1] * kBlockIds) - first_id(task); }
  // In multiplications of one hidden row.
  double total_cost() const { return total_cost_; }

 private:
  static constexpr int64_t kBlockWords = kBlockIds / kWordIds;
  // What is done with a row's block of which nothing is allowed, in multiplications: it is filled and looked through in cache.
  static constexpr double kIdleBlockCost = 512;

  int64_t n_ids_ = 0;
  double total_cost_ = 0;
  std::vector<int64_t> ids_;  // of a block: allowed to any row
  std::vector<double> costs_;
  std::vector<int64_t> first_blocks_;
};

}  // namespace lmhead
