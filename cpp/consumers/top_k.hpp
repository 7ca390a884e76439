// The k best of a row: NaN first (either sign), then descending; equal ones by ascending id, -0.0 equal to +0.0.
// TopList keeps the best of a run of ids in ascending order; TopK keeps a list for each worker and row of a block and merges.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/fold.hpp"
#include "core/target.hpp"

namespace lmhead {

// A float as an unsigned number in the same order: NaN (either sign) above all, -0.0 as +0.0.
inline uint64_t order_of(float x) {
  if (x != x) return 0xffffffffu;
  const float positive_zero = x + 0.0f;
  uint32_t u;
  std::memcpy(&u, &positive_zero, sizeof(u));
  return u & 0x80000000u ? static_cast<uint32_t>(~u) : u | 0x80000000u;
}
inline uint64_t order_of(double x) {
  if (x != x) return ~uint64_t(0);
  const double positive_zero = x + 0.0;
  uint64_t u;
  std::memcpy(&u, &positive_zero, sizeof(u));
  return u >> 63 ? ~u : u | uint64_t(1) << 63;
}

// One candidate. Short: float32 among fewer than 2^32 ids, order and id in one word, so that lists are sorted by one comparison.
struct ShortCandidate {
  using T = float;
  uint64_t key;
  T value;

  ShortCandidate() = default;
  ShortCandidate(T logit, int64_t id) : key(order_of(logit) << 32 | (0xffffffffu - static_cast<uint32_t>(id))), value(logit) {}
  int64_t id() const { return 0xffffffffu - static_cast<uint32_t>(key); }
  bool better(const ShortCandidate& other) const { return key > other.key; }
};

template <class Number>
struct LongCandidate {
  using T = Number;
  uint64_t order;
  int64_t place;
  T value;

  LongCandidate() = default;
  LongCandidate(T logit, int64_t id) : order(order_of(logit)), place(id), value(logit) {}
  int64_t id() const { return place; }
  bool better(const LongCandidate& other) const { return order != other.order ? order > other.order : place < other.place; }
};

constexpr int64_t kShortIds = int64_t(1) << 32;

template <class Candidate>
class TopList {
 public:
  using T = typename Candidate::T;

  void start(int64_t k) {
    k_ = k;
    count_ = 0;
    full_ = false;
  }

  static int64_t most_bytes(int64_t k) { return (room_for(k) + kBlockIds) * static_cast<int64_t>(sizeof(Candidate)); }

  // Logits of ids first_id .. first_id + n - 1; every earlier call had smaller ids. `allowed`: null, or words of bits from id 0 on; the
  // other ids, which hold -inf, never enter. first_id is then a multiple of kBlockIds.
  void add(const KernelTable& table, const T* logits, int64_t n, int64_t first_id, const uint32_t* allowed = nullptr) {
    for (int64_t i = 0; i < n; i += kBlockIds) add_block(table, logits + i, std::min(kBlockIds, n - i), first_id + i, allowed);
  }

  const Candidate* begin() const { return kept_.get(); }
  int64_t size() const { return count_; }

  // The best k of what came, best first.
  void sort() {
    shrink();
    std::sort(kept_.get(), kept_.get() + count_, is_better);
  }

  // Candidates of other ids, in any order.
  void take(const TopList& other) {
    if (count_ + other.count_ > capacity_) grow(count_ + other.count_);
    std::copy(other.begin(), other.begin() + other.count_, kept_.get() + count_);
    count_ += other.count_;
    if (count_ > room_for(k_)) shrink();
  }

 private:
  // Candidates before a list is cut back to k: at least a block's, so that cutting back is rare.
  static int64_t room_for(int64_t k) { return k + std::max<int64_t>(k, kBlockIds); }
  static bool is_better(const Candidate& a, const Candidate& b) { return a.better(b); }

  void add_block(const KernelTable& table, const T* logits, int64_t n, int64_t first_id, const uint32_t* allowed) {
    if (count_ + n > capacity_) grow(std::min(room_for(k_), 2 * (count_ + n)) + kBlockIds);
    Candidate* end = kept_.get() + count_;
    if (!full_) {
      if (allowed) {
        each_id(allowed, first_id, n, [&](int64_t id) { kept_[count_++] = Candidate(logits[id - first_id], id); });
      } else {
        for (int64_t i = 0; i < n; ++i) end[i] = Candidate(logits[i], first_id + i);
        count_ += n;
      }
      if (count_ >= k_) settle();
    } else if (bar_ == bar_) {  // nothing with a greater id passes a bar of NaN
      uint16_t places[kBlockIds];
      const int64_t found = row_kernels<T>(table).select(logits, n, bar_, places);
      for (int64_t i = 0; i < found; ++i) end[i] = Candidate(logits[places[i]], first_id + places[i]);
      count_ += found;
      if (count_ > room_for(k_)) settle();
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
    if (count_ < k_) return;
    std::nth_element(kept_.get(), kept_.get() + k_ - 1, kept_.get() + count_, is_better);
    count_ = k_;
  }

  void grow(int64_t capacity) {
    Buffer<Candidate> larger(capacity);
    std::copy(kept_.get(), kept_.get() + count_, larger.get());
    kept_ = std::move(larger);
    capacity_ = capacity;
  }

  Buffer<Candidate> kept_;
  int64_t k_ = 0, count_ = 0, capacity_ = 0;
  T bar_ = 0;
  bool full_ = false;
};

struct TopKTarget {
  char* values;      // (N, k) of T, contiguous
  int64_t* indices;  // (N, k), contiguous
  int64_t k;

  // A list that is shorter than k, as not so many ids were allowed, ends in -inf of no id.
  template <class Candidate>
  void put(int64_t row, TopList<Candidate>& list) const {
    using T = typename Candidate::T;
    list.sort();
    T* to = reinterpret_cast<T*>(values) + row * k;
    const int64_t found = std::min(k, list.size());
    for (int64_t i = 0; i < found; ++i) {
      to[i] = list.begin()[i].value;
      indices[row * k + i] = list.begin()[i].id();
    }
    std::fill(to + found, to + k, -std::numeric_limits<T>::infinity());
    std::fill(indices + row * k + found, indices + (row + 1) * k, int64_t{-1});
  }
};

template <class Candidate>
class TopK {
 public:
  using T = typename Candidate::T;
  using List = TopList<Candidate>;
  static constexpr bool kAllowedOnly = true;

  TopK(const KernelTable& table, const TopKTarget& out, int threads, const Allowed& allowed = {})
      : table_(table), out_(out), threads_(threads), allowed_(allowed), lists_(static_cast<size_t>(threads)) {}

  int64_t bytes_per_row() const { return threads_ * List::most_bytes(out_.k); }

  void begin(int64_t first_row, int64_t n_rows) {
    first_row_ = first_row;
    for (auto& of_worker : lists_) {
      of_worker.resize(static_cast<size_t>(n_rows));
      for (List& list : of_worker) list.start(out_.k);
    }
  }
  Place<T> place(int64_t, int64_t) const { return {}; }
  void tile(int worker, const Tile<T>& tile) {
    for (int64_t r = 0; r < tile.n_rows; ++r) {
      const int64_t row = tile.first_row + r;
      list(worker, row).add(table_, tile.row(r), tile.n_ids, tile.first_id, allowed_.all() ? nullptr : allowed_.words(row));
    }
  }
  void finish(int64_t first_row, int64_t n_rows) {
    run_tasks(n_rows * out_.k >= 4096 ? threads_ : 1, n_rows, [&](int, int64_t r) {
      List& first = list(0, first_row + r);
      for (int worker = 1; worker < threads_; ++worker) first.take(list(worker, first_row + r));
      out_.put(first_row + r, first);
    });
  }

 private:
  List& list(int worker, int64_t row) {
    return lists_[static_cast<size_t>(worker)][static_cast<size_t>(row - first_row_)];
  }

  const KernelTable& table_;
  const TopKTarget& out_;
  int threads_;
  const Allowed allowed_;
  int64_t first_row_ = 0;
  std::vector<std::vector<List>> lists_;
};

}  // namespace lmhead
