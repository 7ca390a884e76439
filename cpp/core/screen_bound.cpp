#include "core/screen_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lmhead {
namespace {

constexpr double kUnit = 0x1p-24, kTiny = 1.01 * 0x1p-126;

// A sum of n squares in float64, in any order, is within this factor of the exact one.
double above_sum(int64_t n) { return 1 + double(n + 8) * 0x1p-52; }

}  // namespace

float rounded_up(double x) {
  const float nearest = static_cast<float>(x);
  return static_cast<double>(nearest) < x ? std::nextafter(nearest, std::numeric_limits<float>::infinity()) : nearest;
}

// In units of the scale: x = w / scale is known as y with |x - y| <= 2.01 u |x| (the inverse and the multiplication by it), so that
// ||x - q|| <= ||y - q|| + 2.01 u ||x||, where ||x|| <= ||q|| + ||x - q||; 2.1 u takes in the last term and what underflows. Sums of n
// non-negative terms, each of which passed at most ceil(n / 16) + 6 roundings: 2 (n / 16 + 16) u covers their reciprocals too. Terms that
// vanish are below 2^-126 each.
RowNorms screen_norms(const ScreenSquares& sums, float scale, int64_t n) {
  const double above = 1 + 2 * (double(n) / 16 + 16) * kUnit, vanished = double(n) * 0x1p-120;
  const auto norm = [&](float sum) { return std::sqrt(double(sum) * above + vanished) * (1 + 0x1p-50); };
  const double held = sums.norm == 0 ? 0 : norm(sums.norm);
  const double rest = norm(sums.error) * (1 + 2.1 * kUnit) + 2.1 * kUnit * held;
  return {rounded_up(scale * rest), rounded_up(scale * held)};
}

float norm_above(const float* row, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(row[i]) * row[i];
  return rounded_up(std::sqrt(sum * above_sum(n)) * (1 + 0x1p-50));
}

ScreenedHidden screen_hidden(const float* h, int64_t n, int64_t n_padded, double greatest, int sign, int16_t* numbers) {
  constexpr double most = 127 * 256 + 127;
  constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  ScreenedHidden result{{}, false};
  double largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    const double x = std::fabs(double(h[i]));
    finite = finite && x <= double(std::numeric_limits<float>::max());
    largest = x > largest ? x : largest;
  }
  if (!finite || (largest != 0 && (largest < kLeastHidden || largest > kMostHidden))) return result;
  const float step = static_cast<float>(largest / most);
  const double inverse = step == 0 ? 0 : 1 / double(step);
  double rest = 0, squares = 0, held = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = h[i];
    double whole = (x * inverse + magic) - magic;
    whole = whole > most ? most : whole < -most ? -most : whole;
    numbers[i] = static_cast<int16_t>(whole);
    const double missing = x - step * whole;  // the product is exact
    rest += missing * missing;
    squares += x * x;
    held += whole * whole;
  }
  std::fill(numbers + n, numbers + n_padded, int16_t(0));
  const auto norm = [&](double sum) { return std::sqrt(sum * above_sum(n)) * (1 + 0x1p-50); };
  const double eps = norm(rest), hidden = norm(squares), numbers_norm = step * norm(held) * (1 + 0x1p-50);
  if (!(greatest * (hidden + numbers_norm) < 0x1p126)) return result;
  const double chain = double(ceil_div(n, 16) + 5) * kUnit, gamma = chain / (1 - chain), root = std::sqrt(double(n));
  const double by_error = hidden * (1 + gamma) + kTiny * root;
  const double by_norm = eps + gamma * hidden + 8 * kUnit * numbers_norm + kTiny * root;
  const double constant = kTiny * (double(n) + 32 + root * hidden);
  const auto widened = [&](double x) { return static_cast<float>(sign) * rounded_up(x * (1 + 8 * kUnit)); };
  result.row = {step, widened(by_error), widened(by_norm), widened(constant)};
  result.usable = true;
  return result;
}

}  // namespace lmhead
