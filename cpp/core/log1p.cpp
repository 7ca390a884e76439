#include "core/log1p.hpp"

#include <cmath>
#include <limits>

namespace lmhead {
namespace {

// 2 atanh(s) = 2 s (1 + s^2 / 3 + s^4 / 5 + ...); |s| <= 0.1716, so the term after s^22 / 23 is below 2^-60.
double twice_atanh(double s) {
  const double square = s * s;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * square;
  return 2 * s + 2 * s * sum;
}

}  // namespace

double log1p_of(double x) {
  if (x != x || x == std::numeric_limits<double>::infinity()) return x;
  if (x < 0.4142135623730951) return twice_atanh(x / (2 + x));  // s <= 0.1716
  return log_of(1 + x);
}

double log_of(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // in [0.5, 1); exact
  if (mantissa < 0.7071067811865476) {
    mantissa *= 2;
    exponent -= 1;
  }
  // log 2 in two parts: the first has 21 trailing zeros, so its product with an exponent is exact.
  const double high = exponent * 0x1.62e42fee00000p-1, low = exponent * 0x1.a39ef35793c76p-33;
  return high + (twice_atanh((mantissa - 1) / (mantissa + 1)) + low);
}

double minus_log1m_of(double x) { return twice_atanh(x / (2 - x)); }

}  // namespace lmhead
