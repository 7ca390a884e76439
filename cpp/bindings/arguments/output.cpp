#include "bindings/arguments/output.hpp"

#include <algorithm>
#include <cstdlib>

namespace lmhead {
namespace {

bool very_same(const Operand& a, const Operand& b) {
  return a.data == b.data && a.dtype == b.dtype && a.swapped == b.swapped && a.shape == b.shape && a.strides == b.strides;
}

// Extents first; where they meet, NumPy decides whether an element is shared, and what it finds too hard counts as shared.
bool overlap(const Operand& a, const Operand& b) {
  const auto [a_first, a_last] = a.extent();
  const auto [b_first, b_last] = b.extent();
  if (a_first >= b_last || b_first >= a_last) return false;
  if (!py::isinstance<py::array>(a.owner) || !py::isinstance<py::array>(b.owner)) return true;
  constexpr int most_work = 10000;  // candidate solutions NumPy may look at: microseconds
  try {
    return py::module_::import("numpy").attr("shares_memory")(a.owner, b.owner, py::arg("max_work") = most_work).cast<bool>();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return true;
  }
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

// The memory of an array of any dtype.
bool overlaps_array(const Operand& out, py::handle object) {
  if (!py::isinstance<py::array>(object)) return false;
  const auto array = py::reinterpret_borrow<py::array>(object);
  Operand view;
  view.owner = array;
  view.data = static_cast<const char*>(array.data());
  view.dtype = array.itemsize() == 8 ? DType::float64 : array.itemsize() == 4 ? DType::float32 : DType::float16;
  view.shape.assign(array.shape(), array.shape() + array.ndim());
  view.strides.assign(array.strides(), array.strides() + array.ndim());
  return overlap(out, view);
}

void check_out(py::handle out, const Operand& view, const std::vector<int64_t>& shape, bool doubles,
               std::initializer_list<const Operand*> inputs, SameMemory same_memory,
               std::initializer_list<std::pair<const char*, py::handle>> small) {
  const DType wanted = doubles ? DType::float64 : DType::float32;
  if (view.dtype != wanted || view.swapped)
    type_error("out", "dtype " + dtype_text(wanted), std::string(view.swapped ? "byte-swapped " : "") + dtype_text(view.dtype));
  if (view.shape != shape) value_error("out", "shape " + shape_text(shape), "shape " + shape_text(view.shape));
  if (!py::reinterpret_borrow<py::array>(out).writeable()) value_error("out", "a writeable array", "a read-only one");
  if (overlaps_itself(view)) value_error("out", "an element of memory for every element of the result", "an array whose elements share memory");
  bool first = true;
  for (const Operand* input : inputs) {
    const bool may_be_same = first && same_memory == SameMemory::allowed;
    first = false;
    if (!overlap(view, *input) || (may_be_same && very_same(view, *input))) continue;
    value_error("out", may_be_same ? "memory apart from " + input->name + ", or the very same array" : "memory apart from " + input->name,
                "an array that overlaps it", "pass a copy");
  }
  for (const auto& [name, object] : small)
    if (overlaps_array(view, object))
      value_error("out", std::string("memory apart from ") + name, "an array that overlaps it", "pass a copy");
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

}  // namespace

Output output(py::handle out, const std::vector<int64_t>& shape, bool doubles, std::initializer_list<const Operand*> inputs,
              SameMemory same_memory, std::initializer_list<std::pair<const char*, py::handle>> small, bool rows_of_last_axis) {
  Output result;
  if (out.is_none()) {
    result.array = doubles ? py::array(py::array_t<double>(shape)) : py::array(py::array_t<float>(shape));
  } else {
    if (!py::isinstance<py::array>(out)) type_error("out", "a numpy.ndarray", type_text(out));
    result.array = py::reinterpret_borrow<py::array>(out);
    const py::dtype given = result.array.dtype();
    if (given.kind() != 'f' || given.itemsize() != (doubles ? 8 : 4))  // a cast of it would be another array
      type_error("out", "dtype " + dtype_text(doubles ? DType::float64 : DType::float32), "dtype " + std::string(py::str(given)));
  }
  const Operand view = operand("out", result.array);
  if (!out.is_none()) check_out(out, view, shape, doubles, inputs, same_memory, small);
  result.target = target_of(view, rows_of_last_axis, (result.array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) != 0);
  return result;
}

}  // namespace lmhead
