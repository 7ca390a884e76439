// The k best of a row: NaN first (either sign), then descending; equal ones by ascending id, -0.0 equal to +0.0.
// TopList keeps the best of a run of ids in ascending order; TopK keeps a list for each worker and row of a block and merges.
#pragma once

#include <algorithm>
#include <vector>

#include "core/fold.hpp"
#include "core/target.hpp"

namespace lmhead {

template <class T>
struct Better {
  bool operator()(const Candidate<T>& a, const Candidate<T>& b) const {
    if (a.value > b.value) return true;
    if (a.value < b.value) return false;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan;
    return a.id < b.id;
  }
};

template <class T>
class TopList {
 public:
  void start(int64_t k) {
    k_ = k;
    count_ = 0;
    full_ = false;
    room_ = k + std::max<int64_t>(k, 2 * kBlockIds);
  }

  // Logits of ids first_id .. first_id + n - 1; every earlier call had smaller ids.
  void add(const KernelTable& table, const T* logits, int64_t n, int64_t first_id) {
    for (int64_t i = 0; i < n; i += kBlockIds) add_block(table, logits + i, std::min(kBlockIds, n - i), first_id + i);
  }

  const Candidate<T>* begin() const { return kept_.get(); }
  int64_t count() const { return count_; }

  // The best k of what came, best first.
  int64_t sort() {
    shrink();
    std::sort(kept_.get(), kept_.get() + count_, Better<T>());
    return count_;
  }

  // Candidates of other ids, in any order.
  void take(const TopList& other) {
    if (count_ + other.count_ > capacity_) grow(count_ + other.count_);
    std::copy(other.begin(), other.begin() + other.count_, kept_.get() + count_);
    count_ += other.count_;
    if (count_ > room_) shrink();
  }

 private:
  void add_block(const KernelTable& table, const T* logits, int64_t n, int64_t first_id) {
    if (count_ + n > capacity_) grow(std::min(room_, 2 * (count_ + n)) + kBlockIds);
    Candidate<T>* end = kept_.get() + count_;
    if (!full_) {
      for (int64_t i = 0; i < n; ++i) end[i] = {logits[i], first_id + i};
      count_ += n;
      if (count_ >= k_) settle();
    } else if (bar_ == bar_) {  // nothing with a greater id passes a bar of NaN
      count_ += row_kernels<T>(table).select(logits, n, first_id, bar_, end);
      if (count_ > room_) settle();
    }
  }

  // Only what is strictly better than the k-th can still enter, for every later id is greater.
  void settle() {
    shrink();
    bar_ = kept_[k_ - 1].value;
    full_ = true;
  }

  // Leaves the k best, the k-th of them last.
  void shrink() {
    if (count_ <= k_) {
      if (count_ == k_ && k_ > 0) std::nth_element(kept_.get(), kept_.get() + k_ - 1, kept_.get() + count_, Better<T>());
      return;
    }
    std::nth_element(kept_.get(), kept_.get() + k_ - 1, kept_.get() + count_, Better<T>());
    count_ = k_;
  }

  void grow(int64_t capacity) {
    Buffer<Candidate<T>> larger(capacity);
    std::copy(kept_.get(), kept_.get() + count_, larger.get());
    kept_ = std::move(larger);
    capacity_ = capacity;
  }

  Buffer<Candidate<T>> kept_;
  int64_t k_ = 0, count_ = 0, capacity_ = 0, room_ = 0;
  T bar_ = 0;
  bool full_ = false;
};

struct TopKTarget {
  char* values;      // (N, k) of T, contiguous
  int64_t* indices;  // (N, k), contiguous
  int64_t k;

  template <class T>
  void put(int64_t row, TopList<T>& list) const {
    list.sort();
    for (int64_t i = 0; i < k; ++i) {
      reinterpret_cast<T*>(values)[row * k + i] = list.begin()[i].value;
      indices[row * k + i] = list.begin()[i].id;
    }
  }
};

template <class T>
class TopK {
 public:
  TopK(const KernelTable& table, const TopKTarget& out, int threads)
      : table_(table), out_(out), threads_(threads), lists_(static_cast<size_t>(threads)) {}

  void begin(int64_t first_row, int64_t n_rows) {
    first_row_ = first_row;
    for (auto& of_worker : lists_) {
      of_worker.resize(static_cast<size_t>(n_rows));
      for (TopList<T>& list : of_worker) list.start(out_.k);
    }
  }
  Place<T> place(int64_t, int64_t) const { return {}; }
  void tile(int worker, const Tile<T>& tile) {
    for (int64_t r = 0; r < tile.n_rows; ++r)
      list(worker, tile.first_row + r).add(table_, tile.row(r), tile.n_ids, tile.first_id);
  }
  void finish(int64_t first_row, int64_t n_rows) {
    run_tasks(n_rows * out_.k >= 4096 ? threads_ : 1, n_rows, [&](int, int64_t r) {
      TopList<T>& first = list(0, first_row + r);
      for (int worker = 1; worker < threads_; ++worker) first.take(list(worker, first_row + r));
      out_.put(first_row + r, first);
    });
  }

 private:
  TopList<T>& list(int worker, int64_t row) {
    return lists_[static_cast<size_t>(worker)][static_cast<size_t>(row - first_row_)];
  }

  const KernelTable& table_;
  const TopKTarget& out_;
  int threads_;
  int64_t first_row_ = 0;
  std::vector<std::vector<TopList<T>>> lists_;
};

}  // namespace lmhead
