// The producer of a fold over allowed ids: logits of a run of ids, computed side by side from the rows of the weight that are allowed and
// then put in their places among -inf.
// It knows which rows of the weight are read, and whether for all hidden rows at once; it refuses to know threads and consumers.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/allowed_cut.hpp"
#include "core/projection.hpp"
#include "core/tile.hpp"

namespace lmhead {

template <class T>
class AllowedTiles {
 public:
  // All must outlive this object.
  AllowedTiles(const KernelTable& table, const Projection& projection, const Adjust<T>& adjust, const Allowed& allowed)
      : table_(table), projection_(projection), adjust_(adjust), allowed_(allowed) {}

  // Computes what rows [first_row, first_row + n_rows), which are prepared side by side, need of ids [first_id, first_id + n_ids).
  void compute(const void* prepared, int64_t first_row, int64_t n_rows, int64_t first_id, int64_t n_ids, ProjectionScratch& scratch) {
    prepared_ = prepared;
    first_row_ = first_row;
    n_rows_ = n_rows;
    find_ids(first_id, n_ids);
    const int64_t n_any = static_cast<int64_t>(ids_.size());
    together_ = allowed_.shared() || n_each_ >= n_any * std::max<int64_t>(1, n_rows / kRowsOfOneRead);
    whole_ = together_ && n_any == n_ids && allowed_.weight_row(ids_.back()) == allowed_.weight_row(first_id) + n_any - 1;
    if (whole_) return;  // by put(), in place
    if (together_) {
      ids_.insert(ids_.end(), ahead_.begin(), ahead_.end());
      find_weight_rows();
      next_ = 0;
      n_any_ = n_any;
      return project(prepared, n_rows, 0, n_any, logits_.reserve(n_rows * n_any), scratch);
    }
    ids_.clear();
    nexts_.clear();
    for (int64_t r = 0; r < n_rows; ++r) {
      nexts_.push_back(static_cast<int64_t>(ids_.size()));
      each_id(allowed_.words(first_row + r), first_id, n_ids, [&](int64_t id) { ids_.push_back(id); });
    }
    find_weight_rows();
    T* logits = logits_.reserve(n_each_);
    for (int64_t r = 0; r < n_rows; ++r) {
      const int64_t first = nexts_[static_cast<size_t>(r)], end = r + 1 < n_rows ? nexts_[static_cast<size_t>(r) + 1] : n_each_;
      project(static_cast<const char*>(prepared) + r * projection_.hidden_stride(), 1, first, end - first, logits + first, scratch);
    }
  }

  // Whether nothing of a run of ids is allowed to any of those rows.
  bool nothing(int64_t first_id, int64_t n_ids) const {
    uint32_t any = 0;
    for (int64_t r = 0; r < (allowed_.shared() ? 1 : n_rows_); ++r)
      for (int64_t w = first_id / kWordIds; w < ceil_div(first_id + n_ids, kWordIds); ++w) any |= allowed_.words(first_row_ + r)[w];
    return any == 0;
  }

  // Fills a tile of those rows, the ids of which follow the last tile's.
  void put(const Tile<T>& tile, ProjectionScratch& scratch) {
    if (whole_) {
      const Adjust<T> adjust = adjust_at(allowed_.weight_row(tile.first_id));
      projection_.project(prepared_, n_rows_, allowed_.weight_row(tile.first_id), tile.n_ids, tile.logits, tile.stride, scratch);
      adjust(table_, {tile.logits, tile.stride, tile.first_row, tile.n_rows, 0, tile.n_ids});
      if (!allowed_.shared())
        for (int64_t r = 0; r < n_rows_; ++r) allowed_.clear(first_row_ + r, tile.row(r), tile.first_id, tile.n_ids);
      return;
    }
    int64_t end = next_;
    if (together_)
      while (end < n_any_ && ids_[static_cast<size_t>(end)] < tile.first_id + tile.n_ids) ++end;
    for (int64_t r = 0; r < n_rows_; ++r) {
      T* to = tile.row(r);
      std::fill(to, to + tile.n_ids, -std::numeric_limits<T>::infinity());
      if (!together_) {
        int64_t& next = nexts_[static_cast<size_t>(r)];
        each_id(allowed_.words(first_row_ + r), tile.first_id, tile.n_ids, [&](int64_t id) { to[id - tile.first_id] = logits_[next++]; });
        continue;
      }
      const T* from = logits_.get() + r * n_any_;
      for (int64_t i = next_; i < end; ++i) to[ids_[static_cast<size_t>(i)] - tile.first_id] = from[i];
      if (!allowed_.shared()) allowed_.clear(first_row_ + r, to, tile.first_id, tile.n_ids);
    }
    next_ = end;
  }

 private:
  // Rows of the weight beyond a task's that are fetched at its end, for workers mostly go on there.
  static constexpr int64_t kIdsAhead = 6;
  // Words of bits that are searched for them, of all rows together.
  static constexpr int64_t kWordsAhead = 512;

  // The ids of a run that are allowed to any of the rows, how often each row's, and then some of those after the run.
  void find_ids(int64_t first_id, int64_t n_ids) {
    const int64_t n_sets = allowed_.shared() ? 1 : n_rows_;
    const int64_t last_word = ceil_div(first_id + n_ids, kWordIds), n_words = std::min(allowed_.n_words(), last_word + kWordsAhead / n_sets);
    ids_.clear();
    ahead_.clear();
    n_each_ = 0;
    for (int64_t w = first_id / kWordIds; w < n_words && (w < last_word || static_cast<int64_t>(ahead_.size()) < kIdsAhead); ++w) {
      uint32_t any = 0;
      for (int64_t s = 0; s < n_sets; ++s) {
        const uint32_t bits = allowed_.words(first_row_ + s)[w];
        any |= bits;
        if (w < last_word) n_each_ += count_bits(bits);
      }
      auto& found = w < last_word ? ids_ : ahead_;
      for (; any != 0; any &= any - 1) found.push_back(w * kWordIds + __builtin_ctz(any));
    }
  }

  Adjust<T> adjust_at(int64_t weight_row) const {
    Adjust<T> adjust = adjust_;
    if (adjust.bias) adjust.bias += weight_row;
    return adjust;
  }

  void find_weight_rows() {
    rows_.clear();
    for (const int64_t id : ids_) rows_.push_back(allowed_.weight_row(id));
  }

  // Adjusted logits of hidden rows and n ids from place `first` of ids_ on, [n_rows][n].
  void project(const void* prepared, int64_t n_rows, int64_t first, int64_t n, T* out, ProjectionScratch& scratch) {
    if (n == 0) return;
    const int64_t* rows = rows_.data() + first;
    const int64_t n_ahead = std::min(kIdsAhead, static_cast<int64_t>(rows_.size()) - first - n);
    projection_.project_list(prepared, n_rows, rows, n, n_ahead, out, n, scratch);
    adjust_.listed(rows, n, bias_.reserve(n))(table_, Tile<T>{out, n, 0, n_rows, 0, n});
  }

  const KernelTable& table_;
  const Projection& projection_;
  const Adjust<T>& adjust_;
  const Allowed& allowed_;
  const void* prepared_ = nullptr;
  int64_t first_row_ = 0, n_rows_ = 0;
  int64_t n_each_ = 0;          // allowed ids of each row, added up
  bool together_ = false;       // ids are computed for all rows that are allowed to any of them
  bool whole_ = false;          // these are all ids of the run, and their rows of the weight neighbours
  std::vector<int64_t> ids_;    // of all rows together, n_any_ of them, or row after row; then some of those that come next
  std::vector<int64_t> ahead_;
  std::vector<int64_t> rows_;   // of the weight, for ids_
  Buffer<T> logits_;            // [n_rows][n_any_], or row after row its own
  Buffer<T> bias_;
  int64_t n_any_ = 0;
  int64_t next_ = 0;            // place in ids_ that the next tile begins at
  std::vector<int64_t> nexts_;  // place in logits_ of each row
};

}  // namespace lmhead
