// The weights that are kept in other storage than arrays of floats, and their rows as float32.
#include "bindings/arguments/ids.hpp"
#include "bindings/arguments/stored_weight.hpp"
#include "bindings/topics.hpp"
#include "core/parallel.hpp"
#include "dispatch/tables.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

py::array_t<float> dequantize_weight(const StoredWeight& weight) {
  py::array_t<float> out(weight.shape);
  const Rows rows = weight.operand("weight", weight.values).rows();
  float* to = out.mutable_data();
  {
    const py::gil_scoped_release release;
    gather(rows, nullptr, rows.n_rows, to, default_threads());
  }
  return out;
}

// Of a stored weight, or of an array.
py::array gather_rows(py::handle object, py::handle ids_object) {
  const Operand weight = matrix_argument(object);
  const Ids ids = ids_argument(ids_object, weight.shape[0]);
  std::vector<int64_t> shape = ids.shape;
  shape.push_back(weight.shape[1]);
  py::array out(py::dtype(weight.dtype == DType::float64 ? "float64" : "float32"), shape);
  const Rows rows = weight.rows();
  void* to = out.mutable_data();
  {
    const py::gil_scoped_release release;
    gather(rows, ids.values.data(), static_cast<int64_t>(ids.values.size()), to, default_threads());
  }
  return out;
}

// For tests: float32 of one axis, rounded to bfloat16 by the table's kernel, as bits.
py::array_t<uint16_t> bfloat16_bits(const py::array& values) {
  if (values.dtype().num() != py::dtype("float32").num() || values.ndim() != 1 || !(values.flags() & py::array::c_style))
    type_error("values", "float32 of one axis, side by side", "dtype " + std::string(py::str(values.dtype())) + " of shape " + shape_text(shape_of(values)));
  py::array_t<uint16_t> bits(values.size());
  table().narrow_bf16(static_cast<const float*>(values.data()), values.size(), bits.mutable_data());
  return bits;
}

}  // namespace

void bind_stored_weight(py::module_& m) {
  py::class_<StoredWeight>(m, "StoredWeight")
      .def_property_readonly("__lmhead_weight__", [](py::object self) { return self; })
      .def_property_readonly("shape", [](const StoredWeight& w) { return py::make_tuple(w.shape[0], w.shape[1]); })
      .def_property_readonly("is_quantized", [](const StoredWeight& w) { return w.quantized.bits != 0; })
      .def_property_readonly("stored", [](const StoredWeight& w) { return w.values; })
      .def("dequantize", &dequantize_weight)
      .def("gather", &gather_rows);
  m.def("gather", &gather_rows);
  m.def("quantized_weight", &quantized_weight);
  m.def("q8_0_weight", &q8_0_weight);
  m.def("bfloat16_weight", &bfloat16_weight);
  m.def("bfloat16_bits", &bfloat16_bits);
}

}  // namespace lmhead
