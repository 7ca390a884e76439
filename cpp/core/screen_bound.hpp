// Why the certified screen may leave a row out: how far a float32 logit can lie from its estimate.
// It knows norms and roundings; it refuses to know planes, folds and what is done with a bound.
//
// A row w of D weights is kept as signed bytes q, |q| <= 127, with a float32 scale s, a hidden row h as 16-bit numbers T, |T| <=
// 32639, with a float32 step t. Beside them stand, each rounded upwards,
//   e >= ||w - s q||,  b >= ||s q||  (a row of weights),    eps >= ||h - t T||,  H >= ||h||  (a hidden row).
// The estimate is z8 = s t <q, T>, the logit z the float32 dot product as every kernel computes it. u = 2^-24.
//
// 1. The numbers themselves. <w, h> - <s q, t T> = <w - s q, h> + <s q, h - t T>, so Cauchy-Schwarz bounds it by e H + b eps.
// 2. The float32 dot product. Each product passes at most n = ceil(D / 16) + 5 roundings: its lane's chain of FMAs, of which
//    there are ceil(D / 16) (bfloat16 pairs: two for each of ceil(D / 32) steps), and the tree of 4 additions. So |z - <w, h>| <=
//    gamma sum |w_d h_d| <= gamma ||w|| H <= gamma (b + e) H with gamma = n u / (1 - n u).
// 3. The estimate. The integer is exact. Three roundings, as it becomes float32 and is multiplied by t and by s, and one more of
//    the end: together below 4.1 u s t |<q, T>| <= 4.1 u b ||t T||; 8 u is taken.
// 4. The width e A + b B + C of the interval is computed in float32 by two FMAs: A, B and C are made (1 + 8 u) greater and
//    rounded upwards.
// 5. Numbers below 2^-126. An operation whose result is subnormal errs by at most 2^-150, where the instruction is `vdpbf16ps` by
//    2^-126, as it counts subnormal operands and results as 0. Operands: sum over subnormal w_d of |w_d h_d| <= 2^-126 sum |h_d|
//    <= 2^-126 sqrt(D) H, and likewise 2^-126 sqrt(D) (b + e). Results: at most 2^-126 for each of D + 16 operations, and a few
//    more of the estimate. All together (growth of such errors in later operations is far below the slack of 1 %):
//      A = H (1 + gamma) + 1.01 * 2^-126 sqrt(D)
//      B = eps + gamma H + 8 u ||t T|| + 1.01 * 2^-126 sqrt(D)
//      C = 1.01 * 2^-126 (D + 32 + sqrt(D) H)
// 6. Overflow. With M the greatest b + e of the weight, M (H + ||t T||) < 2^126 keeps every partial sum of z and all of the above
//    finite; t <q, T> is bounded by 2^39 t. Hidden rows that are beyond that, or outside kLeastHidden .. kMostHidden, or not
//    finite, take the full pass, as does a scale of 0. Rows of weights that are not finite have e = NaN: their end is NaN, and a
//    NaN is never left out.
// 7. bias, softcap and scale. Adding a bias and multiplying by a scale round monotonically, so the interval's end, adjusted,
//    bounds the adjusted logit; a negative scale takes the lower end. softcap * tanh(z / softcap) errs by less than 7 u (tanh by
//    2 units of the last place, the division and the multiplication by u each, an error of the argument counts once at most, as x
//    tanh'(x) <= tanh(x)), so that two of them and the scale's roundings can be out of order by 20 u relatively: kAdjustSlack is
//    64 u.
// 8. A row is left out if its end is below the k-th best exact logit found so far. Equal ones are kept, for ties are ordered by
//    id.
#pragma once

#include <cstdint>

#include "core/buffer.hpp"
#include "kernels/table.hpp"

namespace lmhead {

// Where 16-bit numbers are multiplied in two parts of 8 bits: 127 * 128 * D < 2^31, so that sums kept modulo 2^32 end within int32.
constexpr int64_t kScreenWidth = int64_t(1) << 17;

// A hidden row's greatest magnitude: its step is a normal number, and step * sum stays finite (2^39 * 2^102 / 32639 < 2^127).
constexpr double kLeastHidden = 0x1p-110, kMostHidden = 0x1p102;

// A row's scale is a normal number; a row whose greatest magnitude is below this is kept as q = 0, e = ||w||.
constexpr float kLeastWeight = 0x1p-118f;

constexpr double kAdjustSlack = 0x1p-18;

// The least float32 that is not below x >= 0.
float rounded_up(double x);

// ||w - s q|| and ||s q|| from a kernel's float32 sums over n elements, rounded upwards.
struct RowNorms {
  float error, norm;
};
RowNorms screen_norms(const ScreenSquares& sums, float scale, int64_t n);
// ||w|| of floats of any size, rounded upwards.
float norm_above(const float* row, int64_t n);

// A hidden row as 16-bit numbers, and its part of every bound.
struct ScreenedHidden {
  ScreenRow row;
  bool usable;  // false: no bound is valid, the row takes the full pass
};

// h: [n] floats. numbers: [n_padded], zeros from n on. greatest: M of point 6. sign: -1 where the lower ends are wanted.
ScreenedHidden screen_hidden(const float* h, int64_t n, int64_t n_padded, double greatest, int sign, int16_t* numbers);

}  // namespace lmhead
