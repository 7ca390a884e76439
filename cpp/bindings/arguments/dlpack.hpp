// CPU tensors of other libraries through the DLPack protocol, which has bfloat16 where NumPy has not.
#pragma once

#include "bindings/arguments/operand.hpp"

namespace lmhead {

bool speaks_dlpack(py::handle object);
Operand operand_from_dlpack(const char* name, py::handle object);

}  // namespace lmhead
