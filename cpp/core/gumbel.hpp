// Gumbel noise from 64 random bits, with all the digits a float64 has at both ends. The argmax of logit / temperature + noise is a draw
// from the softmax (Gumbel, 1954).
// It knows one number; it refuses to know where bits come from.
#pragma once

#include <cstdint>

namespace lmhead {

// -log(E) with E = -log(1 - w), w = (bits + 1/2) / 2^64: E is exponentially distributed, from 2^-65 to 45.1. Where w is above 1/4, 1 - w is
// taken from the complement of the bits; so neither end is rounded away.
double gumbel_of(uint64_t bits);

// No noise is greater: -log(2^-65) = 45.054..., and none is less than -log(45.1) = -3.81.
constexpr double kMostGumbel = 45.2, kLeastGumbel = -4;

}  // namespace lmhead
