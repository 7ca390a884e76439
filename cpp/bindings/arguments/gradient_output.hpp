// Arrays for gradients: what was asked for, into the caller's array or a new one, perhaps added to what is there.
#pragma once

#include <optional>

#include "bindings/arguments/output.hpp"
#include "ops/loss.hpp"

namespace lmhead {

struct GradientArgument {
  const char* name;        // of the array: "dhidden_out"
  py::object out;
  std::vector<int64_t> shape;
  std::string absent_as;   // why the gradient is not made; empty where it is
};

struct Gradients {
  std::vector<std::optional<Output>> outputs;  // nothing where a gradient is not made
  bool accumulate = false;

  GradientTarget target(size_t i) const;
  py::object array(size_t i) const;
};

// The arrays given must be apart from `inputs` and from each other; `in_place` is the one input that may be written over, unless
// something is added to it.
Gradients gradient_outputs(const std::vector<GradientArgument>& arguments, bool doubles, std::vector<Memory> inputs, py::handle accumulate,
                           const Operand* in_place = nullptr);

}  // namespace lmhead
