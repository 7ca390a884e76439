// What rows of logits are drawn from, as numbers: for the rejection of drafts, which has two such distributions.
#pragma once

#include "core/allowed.hpp"
#include "core/draw.hpp"
#include "core/rows.hpp"

namespace lmhead {

// (N, V): the probability of each id under its row's draw, 0 where it is not kept. Returns the first row that nothing can be drawn from, or -1.
int64_t probabilities(const Rows& logits, const Allowed& allowed, const SampleOptions& options, double* out, int threads);

// The logarithm of each number >= 0 of rows of float64, as draws and losses take it: -inf of 0.
void logarithms(const Rows& numbers, double* out, int threads);

}  // namespace lmhead
