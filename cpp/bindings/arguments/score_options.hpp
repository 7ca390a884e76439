// What is asked of scored rows: targets or none, how many of the best, further ids. It refuses what is no id before anything is
// computed, and refuses to know operands and heads.
#pragma once

#include "bindings/arguments/targets.hpp"
#include "ops/scores.hpp"

namespace lmhead {

struct ScoreArguments {
  std::vector<int64_t> shape;  // of the results: that of the targets, less `shift` columns
  bool has_targets = false, has_chosen = false;
  int64_t top_n = 0, n_chosen = 0;
  Scored scored;
};

// Keyword arguments of `given`: ignore_index, shift, top_n, chosen. Rows (..., D) or (..., V) are scored.
ScoreArguments score_arguments(py::handle targets, const Operand& rows, int64_t vocabulary, const py::kwargs& given);

}  // namespace lmhead
