#include "bindings/arguments/options.hpp"
#include "bindings/arguments/output.hpp"
#include "bindings/topics.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

using RowOp = void (*)(const Rows&, double, const Target&, int);

py::array apply(RowOp op, bool reduces, py::handle logits, py::handle temperature, py::handle out, py::handle threads) {
  const Operand rows = row_operand("logits", "(..., V)", logits);
  const double t = temperature_option(temperature);
  const int n_threads = threads_option(threads);
  const OutputRule rule{"out", reduces ? leading(rows.shape) : rows.shape, rows.dtype == DType::float64, false, reduces ? nullptr : &rows, !reduces};
  const Output result = output(out, rule, [&] { return std::vector<Memory>{rows.memory()}; });
  const Rows view = rows.rows();
  {
    const py::gil_scoped_release release;
    op(view, t, result.target, n_threads);
  }
  return result.array;
}

}  // namespace

void bind_softmax(py::module_& m) {
  m.def("softmax", [](py::handle logits, py::handle temperature, py::handle out, py::handle threads) {
    return apply(softmax, false, logits, temperature, out, threads);
  });
  m.def("log_softmax", [](py::handle logits, py::handle temperature, py::handle out, py::handle threads) {
    return apply(log_softmax, false, logits, temperature, out, threads);
  });
  m.def("logsumexp", [](py::handle logits, py::handle temperature, py::handle out, py::handle threads) {
    return apply(log_sum_exp, true, logits, temperature, out, threads);
  });
}

}  // namespace lmhead
