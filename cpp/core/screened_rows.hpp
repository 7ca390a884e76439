// Some hidden rows on their way over a screen: prepared once, then every id's estimate and end.
// It knows tasks and which rows have a bound; it refuses to know what is looked for.
#pragma once

#include <algorithm>
#include <vector>

#include "core/parallel.hpp"
#include "core/screen.hpp"

namespace lmhead {

// Hidden rows that pass over the plane together: what the widest kernel has accumulators for.
constexpr int64_t kScreenedRows = 8;

class ScreenedRows {
 public:
  // All must outlive this object. `lower`: ends are the lower ones, as a negative scale wants them.
  ScreenedRows(const KernelTable& table, const Screen& screen, const Rows& hidden, bool lower)
      : table_(table), screen_(screen), hidden_(hidden), sign_(lower ? -1 : 1) {}

  // Rows [first, first + n) of hidden, n <= kScreenedRows; those that no bound holds for are left out.
  void prepare(int64_t first, int64_t n) {
    const int64_t padded = screen_.padded_width();
    float* wide = wide_.reserve(std::max<int64_t>(1, hidden_.width));
    int16_t* numbers = numbers_.reserve(std::max<int64_t>(1, n * padded));
    rows_.clear();
    indices_.clear();
    for (int64_t row = first; row < first + n; ++row) {
      copy_row(table_, hidden_, row, 0, hidden_.width, RowLayout::wide, wide, temporary_);
      const ScreenedHidden h = screen_hidden(wide, hidden_.width, padded, screen_.greatest(), sign_, numbers + size() * padded);
      if (!h.usable) continue;
      rows_.push_back(h.row);
      indices_.push_back(row);
    }
    words_.reserve(std::max<int64_t>(1, screen_.words_bytes(size())));
    corrections_.reserve(std::max<int64_t>(1, size() * screen_.n_corrections(table_)));
    screen_.interleave(table_, numbers, size(), words_.get(), corrections_.get());
  }

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  // The place of prepared row r among the rows of hidden.
  int64_t index(int64_t r) const { return indices_[static_cast<size_t>(r)]; }

  // Rows of estimates and ends, `stride` >= padded_ids() elements apart. seen(worker, first_id, n_ids) for every finished run, which
  // begins at a multiple of kBlockIds; a worker's runs come in ascending order.
  template <class Seen>
  void scan(float* estimates, float* ends, ptrdiff_t stride, int threads, Seen&& seen) const {
    // Tasks of 1 MiB of the plane, so that memory is read in long runs, but eight a thread, so that a late thread costs little.
    constexpr int64_t task_bytes = 1024 * 1024;
    const int64_t n_blocks = ceil_div(screen_.n_ids(), kBlockIds), block_bytes = kBlockIds * std::max<int64_t>(1, screen_.padded_width());
    const int64_t blocks_per_task = std::max<int64_t>(1, std::min(ceil_div(task_bytes, block_bytes), n_blocks / (8 * threads)));
    run_tasks(threads, ceil_div(n_blocks, blocks_per_task), [&](int worker, int64_t task) {
      const int64_t id = task * blocks_per_task * kBlockIds, n = std::min(blocks_per_task * kBlockIds, screen_.n_ids() - id);
      screen_.scan(table_, {words_.get(), corrections_.get()}, rows_.data(), size(), id, n, estimates + id, ends + id, stride);
      seen(worker, id, n);
    });
  }

 private:
  const KernelTable& table_;
  const Screen& screen_;
  const Rows& hidden_;
  int sign_;
  std::vector<ScreenRow> rows_;
  std::vector<int64_t> indices_;
  Buffer<float> wide_;
  Buffer<int16_t> numbers_;
  Buffer<int32_t> corrections_;
  Buffer<char> words_, temporary_;
};

}  // namespace lmhead
