// How a loss is weighed, reduced and differentiated: everything but operands, targets and arrays for gradients.
#pragma once

#include "bindings/arguments/small_array.hpp"
#include "ops/loss.hpp"

namespace lmhead {

struct LossArguments {
  LossOptions options;
  SmallArray bias, class_weight;  // keep what `options` points to alive
  bool stats = false;
};

// The keyword arguments of every loss. `origin` says where V comes from; doubles: float64 operands.
LossArguments loss_arguments(const py::kwargs& given, int64_t vocabulary, const std::string& origin, bool doubles);

bool flag_option(const char* name, py::handle object);  // True or False, nothing else
int64_t chunk_rows_option(py::handle object);           // None: 0, the op's own choice
double filter_eps_option(py::handle object);            // None: 0, exact

// One number for all positions, or one for each of `loss_shape` under Reduction::none: into counted.grad_output.
SmallArray grad_output_argument(py::handle object, Reduction reduction, const std::vector<int64_t>& loss_shape, Counted& counted);

// Which gradients of the fused loss are asked for.
struct Wanted {
  bool hidden = false, weight = false, bias = false;
  std::string text;  // as Python prints the tuple
};
Wanted wrt_option(py::handle object);

}  // namespace lmhead
