// CPU tensors of other libraries through the DLPack protocol, which has bfloat16 where NumPy has not.
#pragma once

#include "bindings/arguments/operand.hpp"

namespace lmhead {

// A tensor as its producer describes it.
struct Tensor {
  py::object owner;  // the capsule that keeps `data` alive
  const char* data = nullptr;
  std::string dtype;  // NumPy's name for it, "bfloat16", or nothing for what is none of these
  ptrdiff_t item_size = 0;
  std::vector<int64_t> shape;
  std::vector<ptrdiff_t> strides;  // bytes

  Memory memory(const char* name) const;
};

bool speaks_dlpack(py::handle object);
Tensor tensor_from_dlpack(const char* name, py::handle object);

// The same elements for NumPy: in place, but bfloat16 as a float32 copy.
py::array array_of(const char* name, const Tensor& tensor);
// What NumPy makes of an object, or of a tensor.
py::array array_or_tensor(const char* name, py::handle object);
// Floating elements only.
Operand operand_of(const char* name, const Tensor& tensor);

}  // namespace lmhead
