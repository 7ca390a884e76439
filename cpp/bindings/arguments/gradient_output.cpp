#include "bindings/arguments/gradient_output.hpp"

#include <cstring>

#include "bindings/arguments/loss_options.hpp"

namespace lmhead {

GradientTarget Gradients::target(size_t i) const {
  if (!outputs[i]) return {};
  return {true, outputs[i]->target, outputs[i]->dtype};
}

py::object Gradients::array(size_t i) const { return outputs[i] ? py::object(outputs[i]->array) : py::none(); }

Gradients gradient_outputs(const std::vector<GradientArgument>& arguments, bool doubles, std::vector<Memory> inputs, py::handle accumulate,
                           const Operand* in_place) {
  Gradients result;
  result.accumulate = flag_option("accumulate", accumulate);
  bool any_given = false;
  std::string names;
  // All that is given is checked before anything new is made.
  result.outputs.resize(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const GradientArgument& a = arguments[i];
    names += (i ? " or " : "") + std::string(a.name);
    if (a.out.is_none()) continue;
    if (!a.absent_as.empty()) value_error(a.name, "None as " + a.absent_as, type_text(a.out));
    const OutputRule rule{a.name, a.shape, doubles, true, result.accumulate ? nullptr : in_place};
    result.outputs[i] = given_output(a.out, rule, inputs);
    inputs.push_back(memory_of(a.name, result.outputs[i]->array));
    any_given = true;
  }
  if (result.accumulate && !any_given)
    value_error("accumulate", "False without an array to add to", "True", "pass " + names);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const GradientArgument& a = arguments[i];
    if (!a.absent_as.empty() || !a.out.is_none()) continue;
    result.outputs[i] = new_output({a.name, a.shape, doubles});
    // A new array beside one that is added to: what is there is nothing.
    if (result.accumulate) std::memset(result.outputs[i]->array.mutable_data(), 0, static_cast<size_t>(result.outputs[i]->array.nbytes()));
  }
  return result;
}

}  // namespace lmhead
