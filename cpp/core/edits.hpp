// Logits of single ids that are changed before a token is drawn: biases and penalties, sparse.
// It knows one row's edits; it refuses to know tokens' histories and where logits come from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace lmhead {

struct Edit {
  int64_t id = 0;
  double bias = 0;        // added
  double repetition = 1;  // divides what is positive, multiplies the rest
  double frequency = 0;   // subtracted: the penalty times the count
  double presence = 0;    // subtracted

  // In float64, rounded once. What is disallowed stays so.
  template <class T>
  T apply(T logit) const {
    if (logit == -std::numeric_limits<T>::infinity()) return logit;
    double y = double(logit);
    y += bias;
    y = y > 0 ? y / repetition : y * repetition;
    y -= frequency;
    y -= presence;
    return static_cast<T>(y);
  }
};

// Of a row, by ascending id, each id once.
struct RowEdits {
  const Edit* first = nullptr;
  const Edit* last = nullptr;

  bool none() const { return first == last; }
  // Those of ids [from, to).
  RowEdits within(int64_t from, int64_t to) const {
    const auto below = [](const Edit& edit, int64_t id) { return edit.id < id; };
    const Edit* begin = std::lower_bound(first, last, from, below);
    return {begin, std::lower_bound(begin, last, to, below)};
  }
  // To logits of ids from first_id on, which all of these are.
  template <class T>
  void apply(T* logits, int64_t first_id) const {
    for (const Edit* edit = first; edit != last; ++edit) logits[edit->id - first_id] = edit->apply(logits[edit->id - first_id]);
  }
  const Edit* find(int64_t id) const {
    const RowEdits found = within(id, id + 1);
    return found.none() ? nullptr : found.first;
  }
};

}  // namespace lmhead
