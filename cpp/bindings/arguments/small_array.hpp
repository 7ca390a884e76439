// Small arguments of any real dtype: bias, gain, class_weight, token_weight, grad_output.
#pragma once

#include "bindings/arguments/memory.hpp"

namespace lmhead {

struct SmallArray {
  py::array values;  // contiguous and aligned float32 or float64; no elements where None was given
  bool given = false;
  Memory memory;     // the caller's

  const void* data() const { return given ? values.data() : nullptr; }
  const double* doubles() const { return static_cast<const double*>(data()); }
};

// `expected` puts the shape in words. float64 where `doubles`, else float32.
SmallArray small_array(const char* name, py::handle object, const std::vector<int64_t>& shape, const std::string& expected, bool doubles);

// Of shape (length,), where `axis` names the length and `origin` says what it is taken from.
SmallArray vector_argument(const char* name, py::handle object, const char* axis, int64_t length, const std::string& origin, bool doubles);

// A vector of any length, as its owner keeps it: memory of its own, read-only.
py::array kept_vector(const char* name, py::handle object, bool doubles);

}  // namespace lmhead
