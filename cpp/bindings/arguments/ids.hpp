// Token ids: of any integer dtype, each one of 0 .. V - 1.
#pragma once

#include <vector>

#include "bindings/arguments/integers.hpp"

namespace lmhead {

struct Ids {
  std::vector<int64_t> shape;
  std::vector<int64_t> values;  // in C order
};

// An array of integers whose elements have not been looked at.
struct IntegerArray {
  std::string name;  // of the argument
  std::vector<int64_t> shape;
  Integers elements;

  // Element i in C order, which has to be an id.
  int64_t id(int64_t i, int64_t vocabulary) const;
};
IntegerArray integer_array(const char* name, py::handle object);

// Ids that choose rows of a weight.
Ids ids_argument(py::handle object, int64_t vocabulary);

}  // namespace lmhead
