#include "bindings/arguments/memory.hpp"

namespace lmhead {

std::pair<const char*, const char*> extent(const char* data, ptrdiff_t item_size, const std::vector<int64_t>& shape,
                                           const std::vector<ptrdiff_t>& strides) {
  const char *first = data, *last = data + item_size;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0) return {data, data};
    const ptrdiff_t reach = (shape[axis] - 1) * strides[axis];
    (reach < 0 ? first : last) += reach;
  }
  return {first, last};
}

Memory memory_of(const char* name, const py::array& array) {
  const auto [first, last] = extent(static_cast<const char*>(array.data()), array.itemsize(), shape_of(array),
                                    std::vector<ptrdiff_t>(array.strides(), array.strides() + array.ndim()));
  return {name, array, first, last};
}

// Extents first; where they meet, NumPy decides whether an element is shared, and what it finds too hard counts as shared.
bool overlap(const Memory& a, const Memory& b) {
  if (a.first >= b.last || b.first >= a.last) return false;
  if (!py::isinstance<py::array>(a.owner) || !py::isinstance<py::array>(b.owner)) return true;
  constexpr int most_work = 10000;  // candidate solutions NumPy may look at: microseconds
  try {
    return py::module_::import("numpy").attr("shares_memory")(a.owner, b.owner, py::arg("max_work") = most_work).cast<bool>();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return true;
  }
}

}  // namespace lmhead
