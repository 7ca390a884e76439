#include "bindings/arguments/output.hpp"

#include <algorithm>
#include <cstdlib>

#include "bindings/arguments/array.hpp"

namespace lmhead {
namespace {

bool very_same(const Operand& a, const Operand& b) {
  return a.data == b.data && a.dtype == b.dtype && a.swapped == b.swapped && a.shape == b.shape && a.strides == b.strides;
}

// Whether two elements may share memory: every stride has to step over all that the smaller ones reach.
bool overlaps_itself(const Operand& view) {
  if (view.size() <= 1) return false;
  std::vector<std::pair<ptrdiff_t, int64_t>> axes;  // |stride|, length
  for (size_t axis = 0; axis < view.shape.size(); ++axis)
    if (view.shape[axis] > 1) axes.emplace_back(std::abs(view.strides[axis]), view.shape[axis]);
  std::sort(axes.begin(), axes.end());
  ptrdiff_t reach = item_size(view.dtype);
  for (const auto& [stride, length] : axes) {
    if (stride < reach) return true;
    reach += stride * (length - 1);
  }
  return false;
}

bool fits(const py::dtype& dtype, const OutputRule& rule) {
  if (dtype.byteorder() == '>') return false;
  if (dtype.kind() == 'f') return dtype.itemsize() == (rule.doubles ? 8 : 4) || (rule.halves && !rule.doubles && dtype.itemsize() == 2);
  return rule.halves && !rule.doubles && is_bfloat16(dtype);
}

void check(const py::array& array, const Operand& view, const OutputRule& rule, const std::vector<Memory>& apart) {
  if (view.shape != rule.shape) value_error(rule.name, "shape " + shape_text(rule.shape), "shape " + shape_text(view.shape));
  if (!array.writeable()) value_error(rule.name, "a writeable array", "a read-only one");
  if (overlaps_itself(view))
    value_error(rule.name, "an element of memory for every element of the result", "an array whose elements share memory");
  const Memory memory = view.memory();
  for (const Memory& input : apart) {
    const bool may_be_same = rule.in_place && input.name == rule.in_place->name;
    if (!overlap(memory, input) || (may_be_same && very_same(view, *rule.in_place))) continue;
    value_error(rule.name, "memory apart from " + input.name + (may_be_same ? " or exactly its memory" : ""),
                "memory that overlaps it", "pass another array");
  }
}

Target target_of(const Operand& view, bool rows_of_last_axis, bool aligned) {
  Operand axes = view;
  if (!rows_of_last_axis) {
    axes.shape.push_back(1);
    axes.strides.push_back(item_size(view.dtype));
  }
  const Rows rows = axes.rows();
  Target target;
  target.data = const_cast<char*>(rows.data);
  target.n_rows = rows.n_rows;
  target.width = rows.width;
  target.row_stride = rows.row_stride;
  target.element_stride = rows.element_stride;
  target.offsets = rows.offsets;
  target.aligned = aligned;
  return target;
}

Output output_of(const py::array& array, const Operand& view, const OutputRule& rule) {
  const bool aligned = (array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) != 0;
  return {array, view.dtype, target_of(view, rule.rows_of_last_axis, aligned)};
}

}  // namespace

Output new_output(const OutputRule& rule) {
  const py::array array = rule.doubles ? py::array(py::array_t<double>(rule.shape)) : py::array(py::array_t<float>(rule.shape));
  return output_of(array, operand(rule.name, array), rule);
}

Output given_output(py::handle out, const OutputRule& rule, const std::vector<Memory>& apart) {
  if (!py::isinstance<py::array>(out)) type_error(rule.name, "a NumPy array", type_text(out));
  refuse_masked(rule.name, out);
  const auto array = py::reinterpret_borrow<py::array>(out);
  if (!fits(array.dtype(), rule))
    type_error(rule.name, std::string("dtype ") + (rule.doubles ? "float64" : rule.halves ? "float32, float16 or bfloat16" : "float32"),
               py::str(array.dtype()));
  const Operand view = operand(rule.name, array);
  check(array, view, rule, apart);
  return output_of(array, view, rule);
}

}  // namespace lmhead
