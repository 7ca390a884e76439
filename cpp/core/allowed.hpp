// The ids that a call may answer with: a bit for each id and row, and where an id's row of the weight lies when the weight holds only some
// of the vocabulary.
// It knows sets of ids; it refuses to know logits' values, weights and Python.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/buffer.hpp"

namespace lmhead {

constexpr int64_t kWordIds = 32;

inline int64_t count_bits(uint32_t x) {
  x -= x >> 1 & 0x55555555u;
  x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
  return ((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

// Calls see(id) for every bit of `words` in ids [first, first + n), ascending; word 0 begins at id 0. first: a multiple of kWordIds.
template <class See>
inline void each_id(const uint32_t* words, int64_t first, int64_t n, See&& see) {
  for (int64_t id = first; id < first + n; id += kWordIds) {
    uint32_t bits = words[id / kWordIds];
    const int64_t left = first + n - id;
    if (left < kWordIds) bits &= (uint32_t{1} << left) - 1;
    for (; bits != 0; bits &= bits - 1) see(id + __builtin_ctz(bits));
  }
}

class Allowed {
 public:
  // Everything is allowed, of any vocabulary.
  Allowed() = default;

  // `words`: [n_rows][ceil(n_ids / kWordIds)], or one row for all hidden rows where `shared`; bits past n_ids are dropped. A set of
  // everything becomes all().
  Allowed(int64_t n_ids, std::vector<uint32_t> words, bool shared);

  // The same over a weight whose row i is of id vocab_ids[i]; ascending, each below n_ids. Other ids are allowed nowhere.
  Allowed(int64_t n_ids, std::vector<uint32_t> words, bool shared, const std::vector<int64_t>& vocab_ids);

  // Nothing is disallowed, and the weight's rows are the ids; n_ids(), words() and count() are then unknown.
  bool all() const { return !sets_; }
  int64_t n_ids() const { return n_ids_; }
  // One set for all rows.
  bool shared() const { return shared_; }
  int64_t n_words() const { return ceil_div(n_ids_, kWordIds); }
  // Of a row: n_words() words, least significant bit first; bits past n_ids() are 0.
  const uint32_t* words(int64_t row) const { return sets_->data() + set_of(row) * n_words(); }
  bool has(int64_t row, int64_t id) const { return all() || (words(row)[id / kWordIds] >> id % kWordIds & 1) != 0; }
  int64_t count(int64_t row) const { return counts_->at(static_cast<size_t>(set_of(row))); }

  // The weight's row of an id that exists.
  int64_t weight_row(int64_t id) const {
    if (!exists_) return id;
    const Existing& word = (*exists_)[static_cast<size_t>(id / kWordIds)];
    return word.before + count_bits(word.bits & ((uint32_t{1} << id % kWordIds) - 1));
  }

  // Of compacted rows: row i is what rows[i] is here.
  Allowed some_rows(const std::vector<int64_t>& rows) const;

  // -inf in the disallowed places of logits of ids [first_id, first_id + n); first_id: a multiple of kWordIds.
  template <class T>
  void clear(int64_t row, T* logits, int64_t first_id, int64_t n) const {
    if (all()) return;
    const uint32_t* bits = words(row) + first_id / kWordIds;
    for (int64_t i = 0; i < n; i += kWordIds, ++bits) {
      if (*bits == ~uint32_t{0}) continue;
      // No branch, for bits may be random.
      if (n - i >= kWordIds) clear_word(*bits, logits + i, std::integral_constant<int64_t, kWordIds>());
      else clear_word(*bits, logits + i, n - i);
    }
  }

 private:
  template <class T, class Count>
  static void clear_word(uint32_t bits, T* logits, Count n) {
    for (int64_t j = 0; j < n; ++j) logits[j] = (bits & uint32_t{1} << j) != 0 ? logits[j] : -std::numeric_limits<T>::infinity();
  }

  struct Existing {
    uint32_t bits;
    int64_t before;  // rows of the weight before this word's
  };

  int64_t set_of(int64_t row) const { return shared_ ? 0 : rows_.empty() ? row : rows_[static_cast<size_t>(row)]; }
  void keep(std::vector<uint32_t> words, bool everything_is_all);

  int64_t n_ids_ = 0;
  bool shared_ = true;
  std::shared_ptr<const std::vector<uint32_t>> sets_;  // null: all()
  std::shared_ptr<const std::vector<int64_t>> counts_;
  std::shared_ptr<const std::vector<Existing>> exists_;  // null: every id has its own row
  std::vector<int64_t> rows_;                            // of sets, where some were chosen
};

}  // namespace lmhead
