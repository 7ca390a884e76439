// Logarithms in float64, from +, -, *, / alone: libm picks other code by CPU and version, and the last bit of a loss or the winner of
// a draw must not depend on that. A few times per row, so speed hardly matters.
#pragma once

namespace lmhead {

// 2 atanh(s) with s = x / (2 + x) while x is small, else log(1 + x) = e log 2 + 2 atanh((m - 1) / (m + 1)). Within 2 ulp.
double log1p_of(double x);

// log(x) for x > 0, normal: e log 2 + 2 atanh((m - 1) / (m + 1)), m from sqrt(1/2) to sqrt(2), so that near 1 no digit is lost. Within 2 ulp.
double log_of(double x);

// -log(1 - x) for x from 0 to 1/4. Within 2 ulp.
double minus_log1m_of(double x);

}  // namespace lmhead
