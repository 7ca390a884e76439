// The draw of a row: the argmax of logit / temperature + Gumbel noise over its ids, in float64.
//
// Scores are compared by their differences, (y - y') / temperature + (G - G'): that is 0 for equal ids and changes its sign with their
// places, and no offset or temperature, however large, swallows the noise. It comes from portable code (core/gumbel.hpp), so the winner is
// the same whoever found it, but for three scores within a rounding of each other, whose differences need be no order (chances of 2^-50); the
// lower id of equals. A race only finds the few ids whose noise is worth computing: with the best id so far
// L ahead of a block's maximum m (of noise 0), id i can win only if its noise -log E_i makes up for its logit,
//   E_i <= exp((y_i - m) / T - L),  and as E >= w >= u 2^-31 with u half of its first random word, rounded down,
//   p_i = exp((y_i - m) / T) >= u 2^-31 exp(L).
// Each side is wrong by a little: in float32 (y_i - m) / T by 3 roundings of a number that matters up to 87 (2^-16), exp by 2 ulp, the
// bar and its product by 2^-24 each. That is less than 2^-14 together, and the bar is lowered by 2^-12: so which table computed p, and in
// which blocks, never decides. p is flushed to 0 below 2^-126; L >= -4, as the block's first maximum is entered before its race where L is
// less, so no such id reaches a bar of u 2^-31 exp(-4) but one with u = 0, which passes always.
// It knows one row's blocks, or a list of its ids; it refuses to know filters and where logits come from.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/gumbel.hpp"
#include "core/random.hpp"
#include "core/row_kernels.hpp"

namespace lmhead {

// An id with its noise; -1: none yet.
template <class T>
struct Runner {
  int64_t id = -1;
  T logit = 0;
  double noise = 0;
};

template <class T>
class Race {
 public:
  Race(const RowKernels<T>& kernels, const Noise& noise, double temperature) : kernels_(kernels), noise_(noise), temperature_(temperature) {}

  // An id whose logit is not NaN or +inf; one of -inf never wins.
  void enter(T logit, int64_t id, Runner<T>& best) const {
    if (logit != -std::numeric_limits<T>::infinity()) meet({id, logit, gumbel_of(noise_.bits_of(id))}, best);
  }
  void meet(const Runner<T>& other, Runner<T>& best) const {
    if (other.id < 0) return;
    const double lead = best.id < 0 ? -1 : lead_of(best, other.logit, other.noise);
    if (lead < 0 || (lead == 0 && other.id < best.id)) best = other;
  }

  // Logits of ids in any order, none of which `best` has met, their finite maximum, and exp((logit - max) / temperature).
  void list(const T* logits, const T* exps, const int64_t* ids, int64_t n, T max, Runner<T>& best) const {
    if (!begin(max, [&] { return ids[kernels_.find_first(logits, n, max)]; }, best)) return;
    T bar = bar_of(lead_of(best, max, 0));
    for (int64_t i = 0; i < n; ++i) {
      if (!(exps[i] >= static_cast<T>(noise_.word_of(ids[i]) >> 1) * bar)) continue;
      enter(logits[i], ids[i], best);
      bar = bar_of(lead_of(best, max, 0));
    }
  }

  // Logits of ids [first_id, first_id + n) of one block, after those of lower ids, their finite maximum, and exp((logit - max) / temperature).
  void block(const T* logits, const T* exps, int64_t n, int64_t first_id, T max, Runner<T>& best) const {
    if (!begin(max, [&] { return first_id + kernels_.find_first(logits, n, max); }, best)) return;
    double lead = lead_of(best, max, 0);
    uint32_t words[kBlockIds];
    uint16_t places[kBlockIds];
    const int64_t found = kernels_.race(exps, n, noise_.block(first_id), bar_of(lead), words, places);
    for (int64_t i = 0; i < found; ++i) {
      const int64_t at = places[i];
      if (!(exps[at] >= static_cast<T>(words[at] >> 1) * bar_of(lead))) continue;  // the bar has risen
      enter(logits[at], first_id + at, best);
      lead = lead_of(best, max, 0);
    }
  }

 private:
  // False where none of those of this maximum, the first of which is first_of_max(), can win.
  template <class FirstOfMax>
  bool begin(T max, const FirstOfMax& first_of_max, Runner<T>& best) const {
    if (best.id < 0 || lead_of(best, max, 0) < kLeastGumbel) enter(max, first_of_max(), best);
    return lead_of(best, max, 0) <= kMostGumbel;
  }
  // Taken of halves: numbers at the two ends of the range do not overflow before they are divided.
  double lead_of(const Runner<T>& best, T logit, double noise) const {
    return (double(best.logit) / 2 - double(logit) / 2) / temperature_ * 2 + (best.noise - noise);
  }
  // u passes where p >= u * bar.
  static T bar_of(double lead) { return static_cast<T>(std::exp(lead) * (1 - 0x1p-12) * 0x1p-31); }

  const RowKernels<T>& kernels_;
  Noise noise_;
  double temperature_;
};

}  // namespace lmhead
