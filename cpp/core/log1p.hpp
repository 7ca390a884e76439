// log(1 + x) for x >= 0 in float64, from +, -, *, / alone: libm picks other code by CPU and version, and the last bit of a loss
// must not depend on that. Once per row, so speed does not matter.
#pragma once

namespace lmhead {

// 2 atanh(s) with s = x / (2 + x) while x is small, else log(1 + x) = e log 2 + 2 atanh((m - 1) / (m + 1)). Within 2 ulp.
double log1p_of(double x);

}  // namespace lmhead
