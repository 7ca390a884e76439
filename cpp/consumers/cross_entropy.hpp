// Cross entropy of rows: the consumer that collects what each block of ids leaves, and gives every row its loss.
// It knows tiles and targets; it refuses to know weights of tokens, means and gradients.
#pragma once

#include <cstring>
#include <vector>

#include "consumers/loss_blocks.hpp"
#include "core/fold.hpp"

namespace lmhead {

// The consumer. With a softcap and a buffer, tiles come raw, for the gradient needs them so.
template <class T>
class CrossEntropy {
 public:
  // targets (rows of the fold,) and losses likewise; `logits`: where the rows of the fold stay, or null.
  CrossEntropy(const KernelTable& table, const LossBlocks<T>& blocks, const BlockTotals& totals, const int64_t* targets, RowLoss* losses,
               const Place<T>& logits, bool raw, int threads)
      : table_(table), blocks_(blocks), totals_(totals), targets_(targets), losses_(losses), logits_(logits), raw_(raw), threads_(threads),
        scratch_(static_cast<size_t>(threads)) {}

  int64_t bytes_per_row() const { return BlockPartials<T>::bytes(blocks_.n_blocks()); }
  void begin(int64_t first_row, int64_t n_rows) {
    first_row_ = first_row;
    partials_.reserve(n_rows, blocks_.n_blocks(), blocks_.spec(), blocks_.spec().smooth());
  }
  Place<T> place(int64_t first_row, int64_t first_id) const {
    return logits_.logits ? Place<T>{logits_.logits + first_row * logits_.stride + first_id, logits_.stride} : Place<T>{};
  }

  void tile(int worker, const Tile<T>& tile) {
    const LossSpec<T>& spec = blocks_.spec();
    for (int64_t r = 0; r < tile.n_rows; ++r) {
      const int64_t row = tile.first_row + r;
      T* z = tile.row(r);
      if (raw_) {
        T* copy = scratch_[static_cast<size_t>(worker)].reserve(tile.n_ids);
        std::memcpy(copy, z, static_cast<size_t>(tile.n_ids) * sizeof(T));
        spec.adjust(table_, {copy, tile.n_ids, row, 1, tile.first_id, tile.n_ids});
        z = copy;
      }
      blocks_.add(z, tile.n_ids, tile.first_id, spec.class_weight_t ? spec.class_weight_t + tile.first_id : nullptr, partials_.row(row - first_row_));
      const int64_t target = targets_[row] - tile.first_id;
      if (target >= 0 && target < tile.n_ids) losses_[row].target_logit = double(z[target]);
    }
  }

  void finish(int64_t first_row, int64_t n_rows) {
    run_tasks(double(n_rows) * double(blocks_.n_blocks()) >= 4096 ? threads_ : 1, n_rows, [&](int worker, int64_t r) {
      RowLoss& loss = losses_[first_row + r];
      T* factors = scratch_[static_cast<size_t>(worker)].reserve(blocks_.n_blocks());
      blocks_.finish(targets_[first_row + r], blocks_.merge(partials_.row(r), totals_, factors, loss), loss);
    });
  }

 private:
  const KernelTable& table_;
  const LossBlocks<T>& blocks_;
  const BlockTotals& totals_;
  const int64_t* targets_;
  RowLoss* losses_;
  Place<T> logits_;
  bool raw_;
  int threads_;
  int64_t first_row_ = 0;
  PartialRows<T> partials_;
  std::vector<Buffer<T>> scratch_;
};

}  // namespace lmhead
