#include "bindings/arguments/allowed_ids.hpp"
#include "bindings/arguments/head_options.hpp"
#include "bindings/arguments/output.hpp"
#include "bindings/topics.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

py::array logits_of(py::handle hidden, py::handle weight, py::handle bias, py::handle softcap, py::handle scale, py::handle mask,
                    py::handle allowed_ids, py::handle out, py::handle threads) {
  const HeadArguments a = head_arguments(hidden, weight, bias, softcap, scale);
  const AllowedIds ids = allowed_argument(mask, allowed_ids, py::none(), a.head);
  const int n_threads = threads_option(threads);
  const Output result = output(out, {"out", with_last(a.head.hidden.shape, a.head.vocabulary()), a.head.doubles()}, [&] {
    std::vector<Memory> inputs = a.memory();
    inputs.insert(inputs.end(), ids.memory.begin(), ids.memory.end());
    return inputs;
  });
  const Rows hidden_rows = a.head.hidden.rows(), weight_rows = a.head.weight.rows();
  {
    const py::gil_scoped_release release;
    logits(hidden_rows, weight_rows, a.options, ids.allowed, result.target, n_threads);
  }
  return result.array;
}

}  // namespace

void bind_logits(py::module_& m) { m.def("logits", &logits_of); }

}  // namespace lmhead
