#include "bindings/arguments/options.hpp"
#include "bindings/arguments/output.hpp"
#include "bindings/topics.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

py::array norm(bool centred, py::handle x, py::handle gain, py::handle bias, py::handle eps, py::handle out, py::handle threads) {
  const Operand rows = row_operand("x", "(..., D)", x);
  const std::string width = "D = " + std::to_string(rows.shape.back()) + " as in x of shape " + shape_text(rows.shape);
  const py::array gains = vector_operand("gain", "(D,)", gain, rows.shape.back(), width, true);
  const py::array biases = vector_operand("bias", "(D,)", bias, rows.shape.back(), width, true);
  const double epsilon = eps_option(eps);
  const int n_threads = threads_option(threads);
  const Output result = output(out, rows.shape, rows.dtype == DType::float64, {&rows}, SameMemory::allowed, {{"gain", gain}, {"bias", bias}});
  const auto* g = gain.is_none() ? nullptr : static_cast<const double*>(gains.data());
  const auto* b = bias.is_none() ? nullptr : static_cast<const double*>(biases.data());
  const Rows view = rows.rows();
  {
    const py::gil_scoped_release release;
    if (centred) layer_norm(view, g, b, epsilon, result.target, n_threads);
    else rms_norm(view, g, epsilon, result.target, n_threads);
  }
  return result.array;
}

}  // namespace

void bind_norm(py::module_& m) {
  m.def("layer_norm", [](py::handle x, py::handle gain, py::handle bias, py::handle eps, py::handle out, py::handle threads) {
    return norm(true, x, gain, bias, eps, out, threads);
  });
  m.def("rms_norm", [](py::handle x, py::handle gain, py::handle eps, py::handle out, py::handle threads) {
    return norm(false, x, gain, py::none(), eps, out, threads);
  });
}

}  // namespace lmhead
