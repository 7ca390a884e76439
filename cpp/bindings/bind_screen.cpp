// The certified screen, and the top-k lists that it makes cheap.
#include <chrono>

#include <pybind11/stl.h>

#include "bindings/arguments/allowed_ids.hpp"
#include "bindings/arguments/head_options.hpp"
#include "bindings/arguments/screened_weight.hpp"
#include "bindings/topics.hpp"
#include "core/parallel.hpp"
#include "core/screened_rows.hpp"
#include "dispatch/tables.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

std::unique_ptr<Screen> make_screen(py::handle object, py::handle threads) {
  const Operand weight = matrix_argument(object);
  if (weight.dtype == DType::float64 || weight.quantized.bits != 0)
    type_error("weight", "float32, float16 or bfloat16 values for a screen", weight.quantized.bits != 0 ? "a quantised weight" : "float64");
  if (weight.shape[1] > kScreenWidth)
    value_error("weight", "D of at most " + std::to_string(kScreenWidth) + " for a screen", "shape " + shape_text(weight.shape));
  const int n_threads = threads_option(threads);
  const Rows rows = weight.rows();
  const py::gil_scoped_release release;
  return std::make_unique<Screen>(table(), rows, n_threads);
}

py::tuple screened_topk(const Screen& screen, py::handle hidden, py::handle weight, py::handle k, py::handle bias, py::handle softcap,
                        py::handle scale, py::handle mask, py::handle allowed_ids, py::handle vocab_ids, py::handle threads) {
  const HeadArguments a = head_arguments(hidden, weight, bias, softcap, scale);
  check_made_from(screen, a.head.weight);
  const AllowedIds ids = allowed_argument(mask, allowed_ids, vocab_ids, a.head);
  const int64_t count = k_option(k, ids.vocabulary);
  const int n_threads = threads_option(threads);
  const std::vector<int64_t> shape = with_last(a.head.hidden.shape, count);
  py::array_t<float> values(shape);
  py::array_t<int64_t> indices(shape), rescored(leading(shape));
  const TopKTarget target{reinterpret_cast<char*>(values.mutable_data()), indices.mutable_data(), count};
  int64_t* counts = rescored.mutable_data();
  const Rows hidden_rows = a.head.hidden.rows(), weight_rows = a.head.weight.rows();
  {
    const py::gil_scoped_release release;
    screened_top_k(screen, hidden_rows, weight_rows, a.options, ids.allowed, target, counts, n_threads);
  }
  return py::make_tuple(values, indices, rescored);
}

// For tests and benches: estimates and ends of every id, (N, V) each; rows that no bound holds for are NaN.
py::tuple screen_ends(const Screen& screen, py::handle object, bool lower, py::handle threads) {
  const Operand hidden = row_operand("hidden", "(..., D)", object);
  if (hidden.shape.back() != screen.width() || hidden.dtype == DType::float64)
    value_error("hidden", "narrow rows of D = " + std::to_string(screen.width()), dtype_text(hidden.dtype) + " of shape " + shape_text(hidden.shape));
  const int n_threads = threads_option(threads);
  const Rows rows = hidden.rows();
  const int64_t n_ids = screen.n_ids(), stride = screen.padded_ids();
  py::array_t<float> estimates({rows.n_rows, stride}), ends({rows.n_rows, stride});
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  std::fill(estimates.mutable_data(), estimates.mutable_data() + estimates.size(), nan);
  std::fill(ends.mutable_data(), ends.mutable_data() + ends.size(), nan);
  ScreenedRows screened(table(), screen, rows, lower);
  Buffer<float> found(2 * kScreenedRows * stride);
  for (int64_t first = 0; first < rows.n_rows; first += kScreenedRows) {
    screened.prepare(first, std::min(kScreenedRows, rows.n_rows - first));
    float* found_ends = found.get() + kScreenedRows * stride;
    screened.scan(found.get(), found_ends, stride, n_threads, [](int, int64_t, int64_t) {});
    for (int64_t r = 0; r < screened.size(); ++r) {
      std::copy_n(found.get() + r * stride, stride, estimates.mutable_data() + screened.index(r) * stride);
      std::copy_n(found_ends + r * stride, stride, ends.mutable_data() + screened.index(r) * stride);
    }
  }
  const py::slice ids(py::int_(0), py::int_(n_ids), py::none());
  return py::make_tuple(estimates[py::make_tuple(py::ellipsis(), ids)], ends[py::make_tuple(py::ellipsis(), ids)]);
}

// For benches: seconds of `rounds` passes of the same hidden rows, at most 8, over a screen.
std::vector<double> screen_pass_seconds(const Screen& screen, py::handle object, int rounds, py::handle threads) {
  const Operand hidden = row_operand("hidden", "(..., D)", object);
  const int n_threads = threads_option(threads);
  const Rows rows = hidden.rows();
  if (hidden.shape.back() != screen.width() || hidden.dtype == DType::float64 || rows.n_rows < 1 || rows.n_rows > kScreenedRows)
    value_error("hidden", "1 to 8 narrow rows of D = " + std::to_string(screen.width()), dtype_text(hidden.dtype) + " of shape " + shape_text(hidden.shape));
  const py::gil_scoped_release release;
  Buffer<float> estimates(rows.n_rows * screen.padded_ids()), ends(rows.n_rows * screen.padded_ids());
  ScreenedRows screened(table(), screen, rows, false);
  screened.prepare(0, rows.n_rows);
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    screened.scan(estimates.get(), ends.get(), screen.padded_ids(), n_threads, [](int, int64_t, int64_t) {});
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return seconds;
}

}  // namespace

void bind_screen(py::module_& m) {
  py::class_<Screen>(m, "Screen")
      .def(py::init(&make_screen), py::arg("weight"), py::arg("threads") = py::none())
      .def_property_readonly("shape", [](const Screen& s) { return py::make_tuple(s.n_ids(), s.width()); })
      .def_property_readonly("nbytes", &Screen::bytes);
  m.attr("SCREEN_WIDTH") = kScreenWidth;
  m.def("screened_topk", &screened_topk);
  m.def("screen_ends", &screen_ends, py::arg("screen"), py::arg("hidden"), py::arg("lower") = false, py::arg("threads") = py::none());
  m.def("screen_pass_seconds", &screen_pass_seconds, py::arg("screen"), py::arg("hidden"), py::arg("rounds") = 1, py::arg("threads") = py::none());
}

}  // namespace lmhead
