// quantize: integers and scales of a weight of floats, and what is refused.
#include "bindings/arguments/operand.hpp"
#include "bindings/arguments/options.hpp"
#include "bindings/topics.hpp"
#include "ops/quantize.hpp"

namespace lmhead {
namespace {

[[noreturn]] void refuse(const QuantizeRefusal& refusal) {
  const std::string row = " in row " + std::to_string(refusal.row);
  if (refusal.reason == QuantizeRefusal::not_finite) {
    const bool nan = refusal.value != refusal.value;
    value_error("weight", "finite values", (nan ? "NaN" : refusal.value > 0 ? "inf" : "-inf") + row);
  }
  const bool large = refusal.reason == QuantizeRefusal::scale_too_large;
  const char* range = large ? "at most the greatest" : "at least the smallest";
  value_error("weight", std::string("values whose scale is ") + range + " number of scale_dtype",
              "a greatest magnitude of " + number_text(refusal.value) + row, "take float32 scales, or scale the weight first");
}

int64_t group_option(py::handle group, int64_t width) {
  if (group.is_none()) return std::max<int64_t>(1, width);
  const char* expected = "None, 32, 64 or 128";
  const int64_t n = integer_option("group_size", group, 32, 128, expected);
  if (n != 32 && n != 64 && n != 128) value_error("group_size", expected, std::to_string(n));
  return n;
}

// The integers, the scales, D, bits, and the group as it was given.
py::tuple quantize_weight(py::handle weight, py::handle bits_object, py::handle group, bool half_scales, py::handle threads) {
  const Operand given = matrix_argument(weight);
  const int64_t bits = integer_option("bits", bits_object, 4, 8, "8 or 4");
  if (bits != 4 && bits != 8) value_error("bits", "8 or 4", std::to_string(bits));
  const int64_t width = given.shape[1], per_group = group_option(group, width);
  const int n_threads = threads_option(threads);
  const ptrdiff_t bytes = quantized_bytes(static_cast<int>(bits), width);
  const std::vector<py::ssize_t> values_shape{given.shape[0], bytes}, scales_shape{given.shape[0], ceil_div(width, per_group)};
  py::array values(py::dtype(bits == 8 ? "int8" : "uint8"), values_shape);
  py::array scales(py::dtype(half_scales ? "float16" : "float32"), scales_shape);
  const QuantizeTarget target{static_cast<int>(bits), per_group, half_scales, static_cast<char*>(values.mutable_data()), bytes,
                              static_cast<char*>(scales.mutable_data())};
  const Rows rows = given.rows();
  QuantizeRefusal refusal;
  {
    const py::gil_scoped_release release;
    refusal = quantize(rows, target, n_threads);
  }
  if (refusal.reason != QuantizeRefusal::none) refuse(refusal);
  return py::make_tuple(values, scales, width, bits, group.is_none() ? py::object(py::none()) : py::int_(per_group));
}

}  // namespace

void bind_quantize(py::module_& m) { m.def("quantize", &quantize_weight); }

}  // namespace lmhead
