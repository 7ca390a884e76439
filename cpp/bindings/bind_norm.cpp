#include "bindings/arguments/options.hpp"
#include "bindings/arguments/output.hpp"
#include "bindings/arguments/small_array.hpp"
#include "bindings/topics.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

py::array norm(bool centred, py::handle x, py::handle gain, py::handle bias, py::handle eps, py::handle out, py::handle threads) {
  const Operand rows = row_operand("x", "(..., D)", x);
  const std::string origin = "x of shape " + shape_text(rows.shape);
  const SmallArray gains = vector_argument("gain", gain, "D", rows.shape.back(), origin, true);
  const SmallArray biases = vector_argument("bias", bias, "D", rows.shape.back(), origin, true);
  const double epsilon = eps_option(eps);
  const int n_threads = threads_option(threads);
  const OutputRule rule{"out", rows.shape, rows.dtype == DType::float64, false, &rows};
  const Output result = output(out, rule, [&] { return std::vector<Memory>{rows.memory(), gains.memory, biases.memory}; });
  const Rows view = rows.rows();
  {
    const py::gil_scoped_release release;
    if (centred) layer_norm(view, gains.doubles(), biases.doubles(), epsilon, result.target, n_threads);
    else rms_norm(view, gains.doubles(), epsilon, result.target, n_threads);
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
