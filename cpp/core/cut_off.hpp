// A threshold in the order of rank (value descending, then id ascending): what is kept where the kept are the best of a row.
// It knows comparisons; it refuses to know where a threshold comes from.
#pragma once

#include <cstdint>
#include <limits>

namespace lmhead {

// Keeps y > value, and of those equal to it the ids up to `last_id`. As it begins: everything but -inf (and NaN).
template <class T>
struct CutOff {
  T value = -std::numeric_limits<T>::infinity();
  int64_t last_id = -1;

  bool keeps_all() const { return value == -std::numeric_limits<T>::infinity(); }
  bool keeps(T y, int64_t id) const { return y > value || (y == value && id <= last_id); }
  // Whichever keeps less.
  void tighten(const CutOff& other) {
    if (!keeps_all() && !other.keeps(value, last_id)) *this = other;
    else if (keeps_all()) *this = other;
  }
};

}  // namespace lmhead
