#include "bindings/arguments/operand.hpp"

#include <cstring>

#include "bindings/arguments/array.hpp"
#include "bindings/arguments/dlpack.hpp"
#include "bindings/arguments/stored_weight.hpp"
#include "core/half.hpp"

namespace lmhead {
namespace {

constexpr int kFloat32 = 11, kFloat64 = 12, kFloat16 = 23;  // NumPy's type numbers

std::string cast_advice(const std::string& name, const py::dtype& dtype) {
  const char kind = dtype.kind();
  if (name == "weight" && (kind == 'i' || kind == 'u'))
    return "cast it with .astype(numpy.float32), or quantize the floating weight: integers mean something in a QuantizedWeight only";
  if (kind == 'i' || kind == 'u' || kind == 'b') return "cast it with .astype(numpy.float32)";
  if (kind == 'f') return "cast it with .astype(numpy.float64)";
  return "pass real numbers";
}

DType dtype_of(const char* name, const py::dtype& dtype) {
  switch (dtype.num()) {
    case kFloat32: return DType::float32;
    case kFloat64: return DType::float64;
    case kFloat16: return DType::float16;
    default:
      if (!is_bfloat16(dtype)) type_error(name, kFloatingArray, "dtype " + std::string(py::str(dtype)), cast_advice(name, dtype));
      return DType::bfloat16;
  }
}

// An array's memory as elements of `dtype`.
Operand view_of(const char* name, py::array array, DType dtype) {
  Operand view;
  view.name = name;
  view.dtype = dtype;
  view.swapped = array.dtype().byteorder() == '>';
  view.data = static_cast<const char*>(array.data());
  view.shape.assign(array.shape(), array.shape() + array.ndim());
  view.strides.assign(array.strides(), array.strides() + array.ndim());
  view.owner = std::move(array);
  return view;
}

Operand from_array(const char* name, py::array array) {
  refuse_masked(name, array);
  const DType dtype = dtype_of(name, array.dtype());
  return view_of(name, std::move(array), dtype);
}

// The dtype object that a sequence beside `operand` takes; bfloat16 through DLPack has none in NumPy and is no case of this.
py::object dtype_beside(const Operand* operand) {
  if (!operand) return py::dtype("float64");
  if (py::isinstance<py::array>(operand->owner)) return py::object(operand->owner.attr("dtype"));
  return py::dtype(operand->dtype == DType::float64 ? "float64" : operand->dtype == DType::float16 ? "float16" : "float32");
}

// bfloat16 of a float64, rounded once, ties to even.
uint16_t bfloat16_bits(double x) {
  const float narrow = narrow_to_odd(x);
  uint32_t u;
  std::memcpy(&u, &narrow, sizeof(u));
  if (x != x) return static_cast<uint16_t>(u >> 16 | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

py::array_t<uint16_t> bfloat16_array(const py::array& values) {
  const py::array_t<double> wide = values.attr("astype")("float64");
  py::array_t<uint16_t> bits(std::vector<py::ssize_t>(wide.shape(), wide.shape() + wide.ndim()));
  for (py::ssize_t i = 0; i < wide.size(); ++i) bits.mutable_data()[i] = bfloat16_bits(wide.data()[i]);
  return bits;
}

// NumPy's own casts round once; that to bfloat16 goes through float32 and may round twice.
py::array rounded_to(const py::array& values, const py::object& dtype) {
  if (!is_bfloat16(py::reinterpret_borrow<py::dtype>(dtype)) || is_bfloat16(values.dtype())) return values.attr("astype")(dtype);
  return bfloat16_array(values).attr("view")(dtype);
}

// Without a dtype first: strings and objects must not become numbers because a dtype was asked for.
py::array array_from(const char* name, py::handle object, const Operand* beside) {
  const py::array as_is = array_as_is(name, object);
  if (!is_sequence_of_numbers(object)) return as_is;
  if (as_is.size() > 0 && !is_real(as_is.dtype()))
    type_error(name, "a sequence of real numbers", "a " + type_text(object) + " that NumPy reads as dtype " + std::string(py::str(as_is.dtype())));
  return rounded_to(as_is, dtype_beside(beside));
}

bool is_list_like(py::handle object) {
  return !py::isinstance<py::array>(object) && !speaks_dlpack(object) && is_sequence_of_numbers(object);
}

}  // namespace

std::string dtype_text(DType dtype) {
  switch (dtype) {
    case DType::float64: return "float64";
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    default: return "float32";
  }
}

int64_t Operand::size() const { return n_elements(shape); }

Memory Operand::memory() const {
  if (quantized.bits != 0) return memory_of(name.c_str(), owner.cast<const StoredWeight&>().values);
  const auto [first, last] = extent(data, item_size(dtype), shape, strides);
  return {name, owner, first, last};
}

Memory Operand::scales_memory() const {
  if (quantized.bits == 0) return {};
  return memory_of(name.c_str(), owner.cast<const StoredWeight&>().scales);  // blocks, which hold their scales, have an empty array here
}

Rows Operand::rows() const {
  Rows rows;
  rows.data = data;
  rows.dtype = dtype;
  rows.swapped = swapped;
  rows.quantized = quantized;
  rows.width = shape.back();
  rows.element_stride = strides.back();
  rows.n_rows = 1;
  bool single = true;
  for (size_t axis = shape.size() - 1; axis-- > 0;) {
    if (shape[axis] != 1) {
      if (rows.n_rows <= 1) rows.row_stride = strides[axis];
      else single = single && strides[axis] == rows.row_stride * rows.n_rows;
    }
    rows.n_rows *= shape[axis];
  }
  if (!single && rows.n_rows > 0) {
    rows.offsets.assign(1, 0);
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
      std::vector<ptrdiff_t> finer;
      finer.reserve(rows.offsets.size() * static_cast<size_t>(shape[axis]));
      for (const ptrdiff_t offset : rows.offsets)
        for (int64_t i = 0; i < shape[axis]; ++i) finer.push_back(offset + i * strides[axis]);
      rows.offsets = std::move(finer);
    }
  }
  return rows;
}

Operand operand(const char* name, py::handle object, const Operand* beside) {
  if (py::isinstance<py::array>(object)) return from_array(name, py::reinterpret_borrow<py::array>(object));
  if (object.is_none()) type_error(name, kFloatingArray, "None");
  if (stored_operand(name, object)) type_error(name, kFloatingArray, "a " + type_text(object), "take rows of it with .gather(ids), or all with .dequantize()");
  if (speaks_dlpack(object)) return operand_of(name, tensor_from_dlpack(name, object));
  if (beside && beside->dtype == DType::bfloat16 && !py::isinstance<py::array>(beside->owner) && is_sequence_of_numbers(object)) {
    return view_of(name, bfloat16_array(array_from(name, object, nullptr)), DType::bfloat16);
  }
  return from_array(name, array_from(name, object, beside));
}

Operand weight_operand(py::handle object, const Operand* beside) {
  const std::optional<Operand> stored = stored_operand("weight", object);
  return stored ? *stored : operand("weight", object, beside);
}

Operand matrix_argument(py::handle object) {
  Operand weight = weight_operand(object);
  if (weight.shape.size() != 2) value_error("weight", "shape (V, D)", "shape " + shape_text(weight.shape));
  return weight;
}

Head head_operands(py::handle hidden, py::handle weight) {
  Head head;
  if (is_list_like(hidden) && !is_list_like(weight)) {
    head.weight = weight_operand(weight);
    head.hidden = operand("hidden", hidden, &head.weight);
  } else {
    head.hidden = operand("hidden", hidden);
    head.weight = weight_operand(weight, is_list_like(hidden) ? nullptr : &head.hidden);
  }
  const Operand &h = head.hidden, &w = head.weight;
  if (h.shape.empty())
    value_error("hidden", "shape (..., D) with D as in weight of shape " + shape_text(w.shape), "shape ()", "a single state has shape (D,)");
  if (w.shape.size() != 2 || w.shape[1] != h.shape.back())
    value_error("weight", "shape (V, D) with D = " + std::to_string(h.shape.back()) + " as in hidden of shape " + shape_text(h.shape),
                "shape " + shape_text(w.shape),
                w.shape.size() == 2 && w.shape[0] == h.shape.back() ? "a matrix stored as (D, V) is passed as its transpose, weight.T" : "");
  const bool wide_hidden = h.dtype == DType::float64, wide_weight = w.dtype == DType::float64;
  if (wide_hidden && w.quantized.bits != 0)
    type_error("weight", "float64 beside the float64 hidden", "a quantised weight, whose values are float32", "cast hidden with .astype(numpy.float32)");
  if (wide_hidden != wide_weight) {
    const Operand& narrow = wide_hidden ? w : h;
    type_error(narrow.name, "float64 beside the float64 " + std::string(wide_hidden ? "hidden" : "weight"), dtype_text(narrow.dtype),
               "cast " + std::string(wide_hidden ? "hidden" : "weight") + " with .astype(numpy.float32), or " + narrow.name +
                   " with .astype(numpy.float64)");
  }
  return head;
}

Operand row_operand(const char* name, const char* shape, py::handle object) {
  Operand view = operand(name, object);
  if (view.shape.empty()) value_error(name, std::string("shape ") + shape, "shape ()", "a single row has one axis");
  return view;
}

std::vector<int64_t> leading(const std::vector<int64_t>& shape) { return {shape.begin(), shape.end() - 1}; }

std::vector<int64_t> with_last(const std::vector<int64_t>& shape, int64_t last) {
  std::vector<int64_t> result = leading(shape);
  result.push_back(last);
  return result;
}

}  // namespace lmhead
