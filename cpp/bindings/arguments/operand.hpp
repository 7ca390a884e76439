// Array arguments as views: NumPy arrays, CPU tensors through DLPack, Python sequences. Nothing is converted silently.
// It knows Python objects; what comes out of it knows none.
#pragma once

#include <memory>

#include "bindings/arguments/memory.hpp"
#include "core/rows.hpp"

namespace lmhead {

inline constexpr const char* kFloatingArray = "a float32, float64, float16 or bfloat16 array";

struct Operand {
  std::string name;  // of the argument
  py::object owner;  // keeps `data` alive: the array, or the DLPack capsule
  const char* data = nullptr;
  DType dtype = DType::float32;
  bool swapped = false;
  std::vector<int64_t> shape;
  std::vector<ptrdiff_t> strides;  // bytes
  QuantizedRows quantized{};       // where elements are not at `data`

  int64_t size() const;
  Memory memory() const;
  Memory scales_memory() const;  // of a quantised weight; else none
  // Leading axes as rows of the last axis; ndim >= 1.
  Rows rows() const;
};

std::string dtype_text(DType dtype);

// One floating array. A sequence takes `beside`'s dtype, float64 where that is null.
Operand operand(const char* name, py::handle object, const Operand* beside = nullptr);

// A weight, also one in other storage than an array.
Operand weight_operand(py::handle object, const Operand* beside = nullptr);
// A weight (V, D) alone.
Operand matrix_argument(py::handle weight);

// hidden (..., D) and weight (V, D): shapes agree, dtypes are a pair of the dtype table.
struct Head {
  Operand hidden, weight;
  bool doubles() const { return weight.dtype == DType::float64; }
  int64_t vocabulary() const { return weight.shape[0]; }
  std::vector<Memory> memory() const { return {hidden.memory(), weight.memory(), weight.scales_memory()}; }
};
Head head_operands(py::handle hidden, py::handle weight);

// logits (..., V) or x (..., D): at least one axis.
Operand row_operand(const char* name, const char* shape, py::handle object);

// The shape without its last axis, and with another one.
std::vector<int64_t> leading(const std::vector<int64_t>& shape);
std::vector<int64_t> with_last(const std::vector<int64_t>& shape, int64_t last);

}  // namespace lmhead
