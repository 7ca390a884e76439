#include "bindings/arguments/stored_weight.hpp"

namespace lmhead {
namespace {

constexpr int64_t kBlock = 32;
constexpr ptrdiff_t kBlockBytes = 34;

void check_array(const char* name, const py::array& array, const std::string& expected, bool fits, int64_t rows, int64_t columns) {
  if (!fits || array.dtype().byteorder() == '>') type_error(name, expected, "dtype " + std::string(py::str(array.dtype())));
  const bool side_by_side = array.ndim() == 2 && (array.size() == 0 || array.shape(1) <= 1 || array.strides(1) == array.itemsize());
  if (!side_by_side || array.shape(0) != rows || array.shape(1) != columns)
    value_error(name, "shape " + shape_text({rows, columns}) + ", the elements of a row side by side", "shape " + shape_text(shape_of(array)));
}

bool is_a(const py::array& array, char kind, int bytes) { return array.dtype().kind() == kind && array.itemsize() == bytes; }

}  // namespace

StoredWeight quantized_weight(const py::array& values, const py::array& scales, int64_t width, int bits, int64_t group) {
  if (bits != 8 && bits != 4) value_error("bits", "8 or 4", std::to_string(bits));
  if (group < 1 || (group < width && group % kBlock != 0)) value_error("group", "a multiple of 32 or a whole row", std::to_string(group));
  const int64_t rows = values.ndim() > 0 ? values.shape(0) : 0;
  const int64_t columns = bits == 8 ? width : ceil_div(width, kBlock) * kBlock / 2;
  check_array("values", values, bits == 8 ? "int8" : "uint8", is_a(values, bits == 8 ? 'i' : 'u', 1), rows, columns);
  check_array("scales", scales, "float32 or float16", is_a(scales, 'f', 4) || is_a(scales, 'f', 2), rows, ceil_div(width, group));
  StoredWeight weight;
  weight.values = values;
  weight.scales = scales;
  weight.shape = {rows, width};
  QuantizedRows& q = weight.quantized;
  q.values = static_cast<const char*>(values.data());
  q.scales = static_cast<const char*>(scales.data());
  q.values_row_stride = values.strides(0);
  q.values_group_stride = bits == 8 ? group : group / 2;
  q.scales_row_stride = scales.strides(0);
  q.scales_group_stride = scales.itemsize();
  q.group = group;
  q.bits = bits;
  q.half_scales = scales.itemsize() == 2;
  return weight;
}

StoredWeight q8_0_weight(const py::array& blocks) {
  const int64_t rows = blocks.ndim() > 0 ? blocks.shape(0) : 0, bytes = blocks.ndim() == 2 ? blocks.shape(1) : 0;
  check_array("blocks", blocks, "uint8", is_a(blocks, 'u', 1), rows, bytes);
  if (bytes % kBlockBytes != 0) value_error("blocks", "whole blocks of 34 bytes in a row", std::to_string(bytes) + " bytes");
  StoredWeight weight;
  weight.values = blocks;
  weight.shape = {rows, bytes / kBlockBytes * kBlock};
  QuantizedRows& q = weight.quantized;
  q.scales = static_cast<const char*>(blocks.data());
  q.values = q.scales + 2;
  q.values_row_stride = q.scales_row_stride = blocks.strides(0);
  q.values_group_stride = q.scales_group_stride = kBlockBytes;
  q.group = kBlock;
  q.bits = 8;
  q.half_scales = true;
  return weight;
}

StoredWeight bfloat16_weight(const py::array& bits) {
  if (!is_a(bits, 'u', 2)) type_error("bits", "uint16", "dtype " + std::string(py::str(bits.dtype())));
  if (bits.ndim() != 2) value_error("bits", "shape (V, D)", "shape " + shape_text(shape_of(bits)));
  StoredWeight weight;
  weight.values = bits;
  weight.dtype = DType::bfloat16;
  weight.shape = shape_of(bits);
  return weight;
}

Operand StoredWeight::operand(const char* name, py::object owner) const {
  Operand view;
  view.name = name;
  view.owner = std::move(owner);
  view.data = static_cast<const char*>(values.data());
  view.dtype = dtype;
  view.swapped = values.dtype().byteorder() == '>';
  view.shape = shape;
  view.strides.assign(values.strides(), values.strides() + values.ndim());
  view.quantized = quantized;
  return view;
}

std::optional<Operand> stored_operand(const char* name, py::handle object) {
  if (py::isinstance<py::array>(object) || !PyObject_HasAttrString(object.ptr(), "__lmhead_weight__")) return std::nullopt;
  const py::object weight = object.attr("__lmhead_weight__");
  if (!py::isinstance<StoredWeight>(weight)) return std::nullopt;
  return weight.cast<const StoredWeight&>().operand(name, weight);
}

}  // namespace lmhead
