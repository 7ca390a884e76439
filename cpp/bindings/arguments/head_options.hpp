// bias, softcap and scale of the fused functions.
#pragma once

#include "bindings/arguments/operand.hpp"
#include "bindings/arguments/options.hpp"
#include "ops/ops.hpp"

namespace lmhead {

struct HeadArguments {
  Head head;
  py::array bias;  // keeps options.bias alive
  HeadOptions options;
};

inline HeadArguments head_arguments(py::handle hidden, py::handle weight, py::handle bias, py::handle softcap, py::handle scale) {
  HeadArguments a{head_operands(hidden, weight), {}, {}};
  if (!bias.is_none()) {
    a.bias = vector_operand("bias", "(V,)", bias, a.head.vocabulary(), "V = " + std::to_string(a.head.vocabulary()) + " as in weight", a.head.doubles());
    a.options.bias = a.bias.data();
  }
  a.options.softcap = softcap_option(softcap);
  a.options.scale = scale_option(scale);
  return a;
}

}  // namespace lmhead
