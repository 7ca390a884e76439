// Which parameters float32 holds well enough to compute with.
#pragma once

#include <cmath>

namespace lmhead {

// A cap, scale or temperature outside 1e-30 .. 1e30: within it, z / x and x * 2^-13 stay normal numbers for every logit above 1e-8.
// Beyond it rows are computed in float64, for the result may still be ordinary. 0 stands for "none".
inline bool beyond_float(double x) { return x != 0 && !(std::fabs(x) > 1e-30 && std::fabs(x) < 1e30); }

}  // namespace lmhead
