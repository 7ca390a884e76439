// Arrays for results, as the caller gives them or new ones.
#pragma once

#include <initializer_list>

#include "bindings/arguments/operand.hpp"
#include "core/target.hpp"

namespace lmhead {

struct Output {
  py::array array;
  DType dtype = DType::float32;
  Target target;  // rows of the last axis, or single elements
};

// What an array for a result has to be: of this very shape, of float64 where `doubles` and else of float32, writeable, its elements
// apart from each other and from all inputs.
struct OutputRule {
  const char* name = "out";
  std::vector<int64_t> shape;
  bool doubles = false;
  bool halves = false;                // float16 and bfloat16 are fine instead of float32
  const Operand* in_place = nullptr;  // the one input whose very memory it may be
  bool rows_of_last_axis = true;      // the target's rows run along the last axis; else every element is a row of its own
};

Output new_output(const OutputRule& rule);
Output given_output(py::handle out, const OutputRule& rule, const std::vector<Memory>& apart);

// None makes a new array. `apart()` is asked for the inputs' memory only where one was given.
template <class Apart>
Output output(py::handle out, const OutputRule& rule, Apart apart) {
  return out.is_none() ? new_output(rule) : given_output(out, rule, apart());
}

}  // namespace lmhead
