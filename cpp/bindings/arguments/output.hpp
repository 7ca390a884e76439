// `out=` as the caller gives it, or a new array.
#pragma once

#include <initializer_list>
#include <utility>

#include "bindings/arguments/operand.hpp"
#include "core/target.hpp"

namespace lmhead {

struct Output {
  py::array array;
  Target target;  // rows of the last axis, or single elements
};

enum class SameMemory { refused, allowed };

// An array of `shape`, float64 where `doubles`. `out` must have exactly that shape and dtype, be writeable, and share no memory
// with `inputs`; the first of them may be the very same memory where SameMemory::allowed. `small` are further arrays as the caller
// gave them (bias, gain), by name; what is no array is passed over.
// rows_of_last_axis: the target's rows run along the last axis; else every element is a row of its own.
Output output(py::handle out, const std::vector<int64_t>& shape, bool doubles, std::initializer_list<const Operand*> inputs,
              SameMemory same_memory, std::initializer_list<std::pair<const char*, py::handle>> small = {}, bool rows_of_last_axis = true);

}  // namespace lmhead
