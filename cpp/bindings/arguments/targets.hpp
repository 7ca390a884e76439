// Which positions of a loss count, with what they should predict: ids or probabilities, ignore_index, shift, token_weight.
// It refuses what is no target before anything is computed, and refuses to know any formula.
#pragma once

#include "bindings/arguments/small_array.hpp"
#include "bindings/arguments/operand.hpp"
#include "ops/loss.hpp"

namespace lmhead {

struct Targets {
  std::vector<int64_t> loss_shape;  // of the loss under Reduction::none
  Counted counted;
  std::vector<Memory> memory;       // what no result may be written over
  // Keep what `counted` points to alive.
  Operand soft;
  std::unique_ptr<Rows> soft_rows;
};

enum class TargetKinds { ids, ids_or_probabilities };

// Row t of `rows`, of shape (..., D) or (..., V), goes with the target at t + shift along its last leading axis.
// Keyword arguments of `given`: ignore_index, shift, and token_weight where there is one.
Targets targets_argument(py::handle object, const Operand& rows, int64_t vocabulary, TargetKinds kinds, const py::kwargs& given);

}  // namespace lmhead
