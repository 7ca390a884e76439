// The certified screen, and the top-k lists that it makes cheap.
#include "bindings/arguments/head_options.hpp"
#include "bindings/topics.hpp"
#include "core/parallel.hpp"
#include "core/screen.hpp"
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
                        py::handle scale, py::handle threads) {
  const HeadArguments a = head_arguments(hidden, weight, bias, softcap, scale);
  const std::vector<int64_t> made_from{screen.n_ids(), screen.width()};
  if (a.head.doubles() || a.head.weight.shape != made_from)
    value_error("weight", "the weight that the screen was made from, of shape " + shape_text(made_from),
                dtype_text(a.head.weight.dtype) + " of shape " + shape_text(a.head.weight.shape));
  const int64_t count = integer_option("k", k, 0, screen.n_ids(), "an integer from 0 to V = " + std::to_string(screen.n_ids()));
  const int n_threads = threads_option(threads);
  const std::vector<int64_t> shape = with_last(a.head.hidden.shape, count);
  py::array_t<float> values(shape);
  py::array_t<int64_t> indices(shape), rescored(leading(shape));
  const TopKTarget target{reinterpret_cast<char*>(values.mutable_data()), indices.mutable_data(), count};
  int64_t* counts = rescored.mutable_data();
  const Rows hidden_rows = a.head.hidden.rows(), weight_rows = a.head.weight.rows();
  {
    const py::gil_scoped_release release;
    screened_top_k(screen, hidden_rows, weight_rows, a.options, target, counts, n_threads);
  }
  return py::make_tuple(values, indices, rescored);
}

// For tests: estimates and, above them, ends of every id, (N, V) each; rows that no bound holds for are NaN. `sign` -1: ends below.
py::tuple screen_ends(const Screen& screen, py::handle object, int sign) {
  const Operand hidden = row_operand("hidden", "(..., D)", object);
  if (hidden.shape.back() != screen.width() || hidden.dtype == DType::float64)
    value_error("hidden", "narrow rows of D = " + std::to_string(screen.width()), "shape " + shape_text(hidden.shape));
  const KernelTable& kernels = table();
  const Rows rows = hidden.rows();
  const int64_t padded = screen.padded_width(), stride = screen.padded_ids();
  py::array_t<float> estimates({rows.n_rows, screen.n_ids()}), ends({rows.n_rows, screen.n_ids()});
  Buffer<float> wide(screen.width() + 1), found(2 * kScreenedRows * (stride + 1));
  Buffer<int8_t> parts(kScreenedRows * 2 * padded + 1);
  Buffer<char> temporary, words(screen.words_bytes(kernels, kScreenedRows) + 1);
  for (int64_t first = 0; first < rows.n_rows; first += kScreenedRows) {
    const int64_t n = std::min(kScreenedRows, rows.n_rows - first);
    ScreenRow prepared[kScreenedRows] = {};
    bool usable[kScreenedRows];
    std::fill(parts.get(), parts.get() + kScreenedRows * 2 * padded, int8_t(0));
    for (int64_t r = 0; r < n; ++r) {
      copy_row(kernels, rows, first + r, 0, rows.width, RowLayout::wide, wide.get(), temporary);
      const ScreenedHidden h = screen_hidden(wide.get(), rows.width, padded, screen.greatest(), sign, parts.get() + r * 2 * padded);
      prepared[r] = h.row;
      usable[r] = h.usable;
    }
    screen.interleave(kernels, parts.get(), n, words.get());
    screen.scan(kernels, words.get(), prepared, n, 0, screen.n_ids(), found.get(), found.get() + kScreenedRows * stride, stride);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t id = 0; id < screen.n_ids(); ++id) {
        estimates.mutable_at(first + r, id) = usable[r] ? found[r * stride + id] : std::numeric_limits<float>::quiet_NaN();
        ends.mutable_at(first + r, id) = usable[r] ? found[(kScreenedRows + r) * stride + id] : std::numeric_limits<float>::quiet_NaN();
      }
  }
  return py::make_tuple(estimates, ends);
}

}  // namespace

void bind_screen(py::module_& m) {
  py::class_<Screen>(m, "Screen")
      .def(py::init(&make_screen), py::arg("weight"), py::arg("threads") = py::none())
      .def_property_readonly("shape", [](const Screen& s) { return py::make_tuple(s.n_ids(), s.width()); })
      .def_property_readonly("nbytes", &Screen::bytes);
  m.attr("SCREEN_WIDTH") = kScreenWidth;
  m.def("screened_topk", &screened_topk);
  m.def("screen_ends", &screen_ends);
}

}  // namespace lmhead
