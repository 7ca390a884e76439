// The log-sum-exp of a row from its blocks, as (max, rest); and what follows from it.
#pragma once

#include <algorithm>
#include <limits>

#include "core/log1p.hpp"
#include "kernels/table.hpp"

namespace lmhead {

// 1 / temperature as a positive number whose double is finite: (x - max) times it stays 0 for the maximum and -inf for -inf,
// however extreme the temperature.
template <class T>
T inverse_temperature_of(double temperature) {
  const double inverse = 1 / temperature, most = double(std::numeric_limits<T>::max()) / 2;
  if (!(inverse < most)) return static_cast<T>(most);
  return std::max(static_cast<T>(inverse), std::numeric_limits<T>::denorm_min());
}

template <class T>
bool is_finite_sum(const LogSum<T>& sum) { return sum.max - sum.max == T(0); }

// log(1 + rest): what log-softmax subtracts beside the maximum.
template <class T>
T log_sum_of(const LogSum<T>& sum) { return static_cast<T>(log1p_of(double(sum.rest))); }

// (max - logit) / temperature, from halves, for the difference may overflow before it is divided.
inline double distance_below(double max, double logit, double temperature) {
  const double half = max / 2 - logit / 2;
  return half == 0 ? 0 : half / temperature * 2;
}

// log p of a logit, given the log of the sum of what all logits have relative to the maximum. That of certainty is +0.0.
inline double log_probability_of(double max, double logit, double temperature, double log_total) {
  return 0 - (distance_below(max, logit, temperature) + log_total);
}

template <class T>
T log_sum_exp_of(const LogSum<T>& sum, double temperature) {
  if (!is_finite_sum(sum)) return sum.max;
  return static_cast<T>(double(sum.max) / temperature + log1p_of(double(sum.rest)));
}

}  // namespace lmhead
