// The draw of a row: the argmax of logit / temperature + Gumbel noise over its ids, in float64.
//
// The score of an id is exact in the sense that portable code computes it the same way everywhere (core/gumbel.hpp); the winner is the
// argmax of these scores, the lower id among equal ones, whoever found it. A race only finds the few ids whose score is worth computing:
// with the best score L so far and a block's maximum m, id i can win only if its score
//   y_i / T - log E_i >= L,  that is  E_i <= exp(y_i / T - L),  and as E >= w >= u 2^-31 with u half of its first random word, rounded down,
//   p_i = exp((y_i - m) / T) >= u 2^-31 exp(L - m / T).
// Each side is wrong by a little: in float32 (y_i - m) / T by 3 roundings of a number that matters up to 87 (2^-16), exp by 2 ulp, the
// bar and its product by 2^-24 each; the two scores by 2^-16 each while |m / T| < 2^36 (beyond that there is no race). That is less than
// 2^-14 together, and the bar is lowered by 2^-12: so which table computed p, and in which blocks, never decides. p is flushed to 0 below
// 2^-126; L >= m / T - 4, as the block's first maximum is scored before its race where that is not known, so no such id reaches a bar
// u 2^-31 exp(-4) but one with u = 0, which passes always.
// It knows one row's blocks; it refuses to know filters and where logits come from.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/gumbel.hpp"
#include "core/random.hpp"
#include "core/row_kernels.hpp"

namespace lmhead {

template <class T>
struct Winner {
  double score = -std::numeric_limits<double>::infinity();
  int64_t id = -1;
  T logit = 0;

  bool loses_to(double other_score, int64_t other_id) const {
    return id < 0 || other_score > score || (other_score == score && other_id < id);
  }
  void meet(const Winner& other) {
    if (other.id >= 0 && loses_to(other.score, other.id)) *this = other;
  }
};

template <class T>
class Race {
 public:
  Race(const RowKernels<T>& kernels, const Noise& noise, double temperature) : kernels_(kernels), noise_(noise), temperature_(temperature) {}

  double score(T logit, int64_t id) const { return double(logit) / temperature_ + gumbel_of(noise_.bits_of(id)); }

  // An id whose logit is not NaN or +inf; one of -inf never wins.
  void enter(T logit, int64_t id, Winner<T>& best) const {
    if (logit == -std::numeric_limits<T>::infinity()) return;
    const double s = score(logit, id);
    if (best.loses_to(s, id)) best = {s, id, logit};
  }

  // Logits of ids [first_id, first_id + n) of one block, after those of lower ids, their finite maximum, and exp((logit - max) / temperature).
  void block(const T* logits, const T* exps, int64_t n, int64_t first_id, T max, Winner<T>& best) const {
    const double top = double(max) / temperature_;
    if (best.id >= 0 && top + kMostGumbel <= best.score) return;
    if (!(std::fabs(top) < 0x1p36)) return coarse_block(logits, n, first_id, max, best);
    if (best.id < 0 || best.score < top + kLeastGumbel) {
      const int64_t at = kernels_.find_first(logits, n, max);
      enter(logits[at], first_id + at, best);
    }
    uint32_t words[kBlockIds];
    uint16_t places[kBlockIds];
    T bar = bar_of(best.score - top);
    const int64_t found = kernels_.race(exps, n, noise_.block(first_id), bar, words, places);
    for (int64_t i = 0; i < found; ++i) {
      const int64_t at = places[i];
      if (!(exps[at] >= static_cast<T>(words[at] >> 1) * bar)) continue;  // the bar has risen
      enter(logits[at], first_id + at, best);
      bar = bar_of(best.score - top);
    }
  }

 private:
  // u passes where p >= u * bar. No p is above 1, so a bar of 2^29 is as good as a greater one.
  static T bar_of(double lead) { return static_cast<T>(std::min(std::exp(lead) * (1 - 0x1p-12), 0x1p60) * 0x1p-31); }

  // Where logits are so large beside the temperature that scores have few digits left for the noise: everyone is scored who may win,
  // which is everyone equal to the maximum and hardly anyone else.
  void coarse_block(const T* logits, int64_t n, int64_t first_id, T max, Winner<T>& best) const {
    const double nearest = std::fabs(double(max) / temperature_) * 0x1p-50 + kMostGumbel - kLeastGumbel;
    for (int64_t i = 0; i < n; ++i) {
      const double gap = (double(max) / 2 - double(logits[i]) / 2) / temperature_ * 2;
      if (gap > nearest || (best.id >= 0 && double(logits[i]) / temperature_ + kMostGumbel <= best.score)) continue;
      enter(logits[i], first_id + i, best);
    }
  }

  const RowKernels<T>& kernels_;
  Noise noise_;
  double temperature_;
};

}  // namespace lmhead
