// Token ids that choose rows: of any integer dtype, each one of 0 .. V - 1.
#pragma once

#include <vector>

#include "bindings/arguments/errors.hpp"

namespace lmhead {

struct Ids {
  std::vector<int64_t> shape;
  std::vector<int64_t> values;  // in C order
};

Ids ids_argument(py::handle object, int64_t vocabulary);

}  // namespace lmhead
