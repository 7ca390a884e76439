#include "bindings/arguments/gradient_output.hpp"
#include "bindings/arguments/options.hpp"
#include "bindings/arguments/targets.hpp"
#include "bindings/loss_results.hpp"
#include "bindings/topics.hpp"

namespace lmhead {
namespace {

// Arguments after the arrays come by keyword, all of them: the signatures in Python are what gives them their defaults.
struct Call {
  Head head;
  LossArguments loss;
  int64_t chunk_rows;
  double filter_eps;
  int threads;
  Targets targets;

  Call(py::handle hidden, py::handle weight, py::handle targets_object, const py::kwargs& given)
      : head(head_operands(hidden, weight)),
        loss(loss_arguments(given, head.vocabulary(), "weight of shape " + shape_text(head.weight.shape), head.doubles())),
        chunk_rows(chunk_rows_option(py::object(given["chunk_rows"]))),
        filter_eps(filter_eps_option(py::object(given["filter_eps"]))),
        threads(threads_option(py::object(given["threads"]))),
        targets(targets_argument(targets_object, head.hidden, head.vocabulary(), TargetKinds::ids, given)) {}

  py::object run(const LinearGradients* gradients) const {
    const LossResults results(loss, targets.loss_shape, head.doubles());
    const Rows hidden_rows = head.hidden.rows(), weight_rows = head.weight.rows();
    LossScalars scalars;
    {
      const py::gil_scoped_release release;
      scalars = linear_cross_entropy(hidden_rows, weight_rows, targets.counted, loss.options, chunk_rows, results.target(), gradients, threads);
    }
    return results.finish(scalars);
  }
};

py::object loss_of(py::handle hidden, py::handle weight, py::handle targets, const py::kwargs& given) {
  return Call(hidden, weight, targets, given).run(nullptr);
}

py::tuple loss_and_gradients(py::handle hidden, py::handle weight, py::handle targets, const py::kwargs& given) {
  Call call(hidden, weight, targets, given);
  const SmallArray outer = grad_output_argument(py::object(given["grad_output"]), call.loss.options.reduction, call.targets.loss_shape, call.targets.counted);
  const Wanted wanted = wrt_option(py::object(given["wrt"]));
  if (wanted.weight && call.head.weight.quantized.bits != 0)
    value_error("wrt", "names without 'weight' for a quantised weight, which has no gradient", wanted.text,
                call.loss.bias.given ? "pass wrt=('hidden', 'bias')" : "pass wrt=('hidden',)");
  const std::string unasked = "wrt is " + wanted.text;
  std::vector<Memory> inputs = call.head.memory();
  inputs.insert(inputs.end(), {call.loss.bias.memory, call.loss.class_weight.memory, outer.memory});
  inputs.insert(inputs.end(), call.targets.memory.begin(), call.targets.memory.end());
  const Gradients arrays = gradient_outputs(
      {{"dhidden_out", py::object(given["dhidden_out"]), call.head.hidden.shape, wanted.hidden ? "" : unasked},
       {"dweight_out", py::object(given["dweight_out"]), call.head.weight.shape, wanted.weight ? "" : unasked},
       {"dbias_out", py::object(given["dbias_out"]), {call.head.vocabulary()}, !wanted.bias ? unasked : call.loss.bias.given ? "" : "there is no bias"}},
      call.head.doubles(), std::move(inputs), py::object(given["accumulate"]));
  const LinearGradients gradients{arrays.target(0), arrays.target(1), arrays.target(2), arrays.accumulate, call.filter_eps};
  const bool any = gradients.hidden.wanted || gradients.weight.wanted || gradients.bias.wanted;
  const py::object loss = call.run(any ? &gradients : nullptr);
  return py::make_tuple(loss, arrays.array(0), arrays.array(1), arrays.array(2));
}

}  // namespace

void bind_linear_cross_entropy(py::module_& m) {
  m.def("linear_cross_entropy", &loss_of);
  m.def("linear_cross_entropy_with_grad", &loss_and_gradients);
}

}  // namespace lmhead
