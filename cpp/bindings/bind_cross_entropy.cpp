#include "bindings/arguments/gradient_output.hpp"
#include "bindings/arguments/options.hpp"
#include "bindings/arguments/targets.hpp"
#include "bindings/loss_results.hpp"
#include "bindings/topics.hpp"

namespace lmhead {
namespace {

// Arguments after the arrays come by keyword, all of them: the signatures in Python are what gives them their defaults.
struct Call {
  Operand logits;
  LossArguments loss;
  int threads;
  Targets targets;
  bool doubles;

  Call(py::handle logits_object, py::handle targets_object, const py::kwargs& given)
      : logits(row_operand("logits", "(..., V)", logits_object)),
        loss(loss_arguments(given, logits.shape.back(), "logits of shape " + shape_text(logits.shape), logits.dtype == DType::float64)),
        threads(threads_option(py::object(given["threads"]))),
        targets(targets_argument(targets_object, logits, logits.shape.back(), TargetKinds::ids_or_probabilities, given)),
        doubles(logits.dtype == DType::float64) {}

  py::object run(const GradientTarget* gradient, bool accumulate) const {
    const LossResults results(loss, targets.loss_shape, doubles);
    const Rows rows = logits.rows();
    LossScalars scalars;
    {
      const py::gil_scoped_release release;
      scalars = cross_entropy(rows, targets.counted, loss.options, results.target(), gradient, accumulate, threads);
    }
    return results.finish(scalars);
  }
};

py::object loss_of(py::handle logits, py::handle targets, const py::kwargs& given) {
  return Call(logits, targets, given).run(nullptr, false);
}

py::tuple loss_and_gradient(py::handle logits, py::handle targets, const py::kwargs& given) {
  Call call(logits, targets, given);
  const SmallArray outer = grad_output_argument(py::object(given["grad_output"]), call.loss.options.reduction, call.targets.loss_shape, call.targets.counted);
  std::vector<Memory> inputs{call.logits.memory(), call.loss.bias.memory, call.loss.class_weight.memory, outer.memory};
  inputs.insert(inputs.end(), call.targets.memory.begin(), call.targets.memory.end());
  const Gradients gradients = gradient_outputs({{"dlogits_out", py::object(given["dlogits_out"]), call.logits.shape, ""}}, call.doubles,
                                               std::move(inputs), py::object(given["accumulate"]), &call.logits);
  const GradientTarget target = gradients.target(0);
  const py::object loss = call.run(&target, gradients.accumulate);
  return py::make_tuple(loss, gradients.array(0));
}

}  // namespace

void bind_cross_entropy(py::module_& m) {
  m.def("cross_entropy", &loss_of);
  m.def("cross_entropy_with_grad", &loss_and_gradient);
}

}  // namespace lmhead
