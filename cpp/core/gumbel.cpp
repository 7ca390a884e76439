#include "core/gumbel.hpp"

#include "core/log1p.hpp"

namespace lmhead {

double gumbel_of(uint64_t bits) {
  constexpr uint64_t quarter = uint64_t{1} << 62;
  const auto fraction = [](uint64_t b) { return (static_cast<double>(b) + 0.5) * 0x1p-64; };
  const double exponential = bits < quarter ? minus_log1m_of(fraction(bits)) : -log_of(fraction(~bits));
  return -log_of(exponential);
}

}  // namespace lmhead
