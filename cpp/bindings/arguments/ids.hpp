// Token ids that choose rows: of any integer dtype, each one of 0 .. V - 1.
#pragma once

#include <vector>

#include "bindings/arguments/integers.hpp"
#include "bindings/arguments/memory.hpp"

namespace lmhead {

struct Ids {
  std::vector<int64_t> shape;
  std::vector<int64_t> values;  // in C order
};

// An array, tensor or sequence of integers, whatever they are.
struct IntegerArray {
  std::vector<int64_t> shape;
  Integers all;  // in C order
  Memory memory;
};
IntegerArray integer_array(const char* name, py::handle object);

// "an id from 0 to V - 1 = 10".
std::string id_text(int64_t vocabulary);

// Refuses element i where it is no id of the vocabulary.
void check_id(const std::string& name, const IntegerArray& ids, int64_t i, int64_t vocabulary);

Ids ids_argument(py::handle object, int64_t vocabulary);

}  // namespace lmhead
