// bias, softcap and scale of the fused functions.
#pragma once

#include "bindings/arguments/operand.hpp"
#include "bindings/arguments/options.hpp"
#include "bindings/arguments/small_array.hpp"
#include "ops/ops.hpp"

namespace lmhead {

struct HeadArguments {
  Head head;
  SmallArray bias;  // keeps options.bias alive
  HeadOptions options;

  std::vector<Memory> memory() const {
    std::vector<Memory> all = head.memory();
    all.push_back(bias.memory);
    return all;
  }
};

inline HeadArguments head_arguments(py::handle hidden, py::handle weight, py::handle bias, py::handle softcap, py::handle scale) {
  HeadArguments a{head_operands(hidden, weight), {}, {}};
  a.bias = vector_argument("bias", bias, "V", a.head.vocabulary(), "weight of shape " + shape_text(a.head.weight.shape), a.head.doubles());
  a.options.bias = a.bias.data();
  a.options.softcap = softcap_option(softcap);
  a.options.scale = scale_option(scale);
  return a;
}

}  // namespace lmhead
