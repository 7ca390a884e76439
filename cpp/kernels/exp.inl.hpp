// exp and tanh on one native vector, the same rounding in every table: add, multiply, FMA, integer shifts and nothing else.
//
// exp(x), float32, x <= 88: n = round(16 x / ln 2), r = x - n ln 2 / 16, |r| <= ln 2 / 32 = 0.0217;
//   exp(x) = 2^(n / 16) (1 + r + r^2 / 2 + r^3 / 6), remainder r^4 / 24 < 9.2e-9 = 0.08 ulp; with the roundings of the table
//   entry and of the last FMA 1.1 ulp. ln 2 / 16 is one float32, 2.7e-9 of it too much: a relative error of 2.7e-9 |x|, a
//   twentieth of what the rounding of x itself means. Six multiplications, against nine without a table.
// exp(x), float64: n = round(x / ln 2), |r| <= 0.347, Taylor to r^13: remainder r^14 / 14! = 4e-18.
// tanh(x) = e / (e + 2) with e = expm1(2 |x|), no cancellation anywhere.
// What is below the smallest normal number becomes 0, by selection. NaN stays NaN.
#pragma once

#include "simd/lanes.hpp"

namespace lmhead {
namespace {

// 1.5 * 2^mantissa bits: adding it rounds to an integer, which then stands in the low mantissa bits.
template <class T> constexpr T kMagic = sizeof(T) == 4 ? T(12582912.0) : T(6755399441055744.0);
// ln of the smallest normal number, rounded up.
template <class T> constexpr T kLeastExponent = sizeof(T) == 4 ? T(-87.33654) : T(-708.3964185322641);
template <class T> constexpr T kInfinity = T(__builtin_inf());
template <class T> constexpr T kNaN = T(__builtin_nan(""));

// ln 2 as the nearest number and what that lacks.
template <class T> constexpr T kLn2High = sizeof(T) == 4 ? T(0x1.62e430p-1) : T(0x1.62e42fefa39efp-1);
template <class T> constexpr T kLn2Low = sizeof(T) == 4 ? T(-0x1.05c610p-29) : T(0x1.abc9e3b39803fp-56);

// Bits of 2^(j / 16) minus j << 19, so that adding n << 19 with n = 16 q + j leaves q in the exponent.
alignas(64) constexpr int32_t kExp2Table[16] = {
    0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532, 0x3f75fed7, 0x3f75583f,
    0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c, 0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};

template <class T>
inline Vector<T> taylor_expm1(Vector<T> r) {
  constexpr int degree = sizeof(T) == 4 ? 7 : 13;  // remainders r^8 / 8! = 5e-9 and r^14 / 14! = 4e-18 at |r| = 0.347
  double factorial = 1.0;
  T coefficient[degree + 1];
  for (int k = 1; k <= degree; ++k) coefficient[k] = T(1.0 / (factorial *= k));
  Vector<T> q = broadcast(coefficient[degree]);
  for (int k = degree - 1; k >= 2; --k) q = mul_add(q, r, broadcast(coefficient[k]));
  return mul_add(mul(q, r), r, r);
}

inline VF exp_normal(VF x) {
  const VF magic = broadcast(kMagic<float>);
  const VF n = mul_add(x, broadcast(23.083120654223414f), magic);  // 16 / ln 2
  const VF t = sub(n, magic);
  const VF r = mul_add(t, broadcast(-kLn2High<float> / 16), x);
  const VF q = mul_add(mul_add(broadcast(1.0f / 6.0f), r, broadcast(0.5f)), r, broadcast(1.0f));
  const VF power = table_exp2(n, kExp2Table);
  return mul_add(power, mul(q, r), power);
}

inline VD exp_normal(VD x) {
  const VD magic = broadcast(kMagic<double>);
  const VD n = mul_add(x, broadcast(1.4426950408889634), magic);  // 1 / ln 2
  const VD t = sub(n, magic);
  const VD r = mul_add(t, broadcast(-kLn2Low<double>), mul_add(t, broadcast(-kLn2High<double>), x));
  const VD power = exponent_exp2(n);
  return mul_add(power, taylor_expm1<double>(r), power);
}

// exp(x) for x <= 0, -inf included; NaN stays NaN.
template <class T>
inline Vector<T> exp_below_one(Vector<T> x) {
  return select_or_zero(not_less(x, broadcast(kLeastExponent<T>)), exp_normal(x));
}

// (x - max) / temperature. With a temperature the difference is taken of halves, so that numbers near the two ends of the range do
// not overflow before they are divided; halving is exact but for subnormals.
template <class T, bool scaled>
inline Vector<T> below_max(Vector<T> x, T max, T inverse_temperature) {
  if (!scaled) return sub(x, broadcast(max));
  const T half = T(0.5);
  return mul(sub(mul(x, broadcast(half)), broadcast(max * half)), broadcast(inverse_temperature * T(2)));
}

template <class T>
inline Vector<T> tanh_of(Vector<T> x) {
  // Beyond 2 |x| = 40, e / (e + 2) is 1 in both types.
  const Vector<T> y = min(broadcast(T(40)), mul(abs(x), broadcast(T(2))));
  const Vector<T> magic = broadcast(kMagic<T>);
  const Vector<T> n = mul_add(y, broadcast(T(1.4426950408889634)), magic);
  const Vector<T> t = sub(n, magic);
  const Vector<T> r = mul_add(t, broadcast(-kLn2Low<T>), mul_add(t, broadcast(-kLn2High<T>), y));
  const Vector<T> power = exponent_exp2(n);
  const Vector<T> e = mul_add(power, taylor_expm1<T>(r), sub(power, broadcast(T(1))));
  return copy_sign(div(e, add(e, broadcast(T(2)))), x);
}

}  // namespace
}  // namespace lmhead
