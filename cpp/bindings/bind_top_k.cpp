#include "bindings/arguments/allowed_ids.hpp"
#include "bindings/arguments/head_options.hpp"
#include "bindings/topics.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

struct Lists {
  py::array values;
  py::array_t<int64_t> indices;
  TopKTarget target;

  Lists(const std::vector<int64_t>& shape, bool doubles)
      : values(doubles ? py::array(py::array_t<double>(shape)) : py::array(py::array_t<float>(shape))), indices(shape),
        target{static_cast<char*>(values.mutable_data()), indices.mutable_data(), shape.back()} {}
};

py::tuple logits_topk(py::handle hidden, py::handle weight, py::handle k, py::handle bias, py::handle softcap, py::handle scale,
                      py::handle mask, py::handle allowed_ids, py::handle vocab_ids, py::handle threads) {
  const HeadArguments a = head_arguments(hidden, weight, bias, softcap, scale);
  const AllowedIds ids = allowed_argument(mask, allowed_ids, vocab_ids, a.head);
  const int64_t count = k_option(k, ids.vocabulary);
  const int n_threads = threads_option(threads);
  Lists lists(with_last(a.head.hidden.shape, count), a.head.doubles());
  const Rows hidden_rows = a.head.hidden.rows(), weight_rows = a.head.weight.rows();
  {
    const py::gil_scoped_release release;
    logits_top_k(hidden_rows, weight_rows, a.options, ids.allowed, lists.target, n_threads);
  }
  return py::make_tuple(lists.values, lists.indices);
}

py::tuple topk(py::handle logits, py::handle k, py::handle threads) {
  const Operand rows = row_operand("logits", "(..., V)", logits);
  const int64_t count = k_option(k, rows.shape.back());
  const int n_threads = threads_option(threads);
  Lists lists(with_last(rows.shape, count), rows.dtype == DType::float64);
  const Rows view = rows.rows();
  {
    const py::gil_scoped_release release;
    top_k(view, lists.target, n_threads);
  }
  return py::make_tuple(lists.values, lists.indices);
}

}  // namespace

void bind_top_k(py::module_& m) {
  m.def("logits_topk", &logits_topk);
  m.def("topk", &topk);
}

}  // namespace lmhead
