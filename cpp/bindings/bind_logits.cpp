#include "bindings/arguments/head_options.hpp"
#include "bindings/arguments/output.hpp"
#include "bindings/topics.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

py::array logits_of(py::handle hidden, py::handle weight, py::handle bias, py::handle softcap, py::handle scale, py::handle out,
                    py::handle threads) {
  const HeadArguments a = head_arguments(hidden, weight, bias, softcap, scale);
  const int n_threads = threads_option(threads);
  const Output result = output(out, {"out", with_last(a.head.hidden.shape, a.head.vocabulary()), a.head.doubles()}, [&] { return a.memory(); });
  const Rows hidden_rows = a.head.hidden.rows(), weight_rows = a.head.weight.rows();
  {
    const py::gil_scoped_release release;
    logits(hidden_rows, weight_rows, a.options, result.target, n_threads);
  }
  return result.array;
}

}  // namespace

void bind_logits(py::module_& m) { m.def("logits", &logits_of); }

}  // namespace lmhead
