// Weights in storage that NumPy has no dtype for: quantised rows, and bfloat16 as the uint16 of a file.
// It knows arrays and what they mean; it refuses to know who made them.
#pragma once

#include <optional>

#include "bindings/arguments/operand.hpp"

namespace lmhead {

// An immutable (V, D) of float32 or bfloat16 values. An object that is used as one has it as its attribute `__lmhead_weight__`.
struct StoredWeight {
  py::array values, scales;  // keep the memory alive; no scales for bfloat16
  DType dtype = DType::float32;
  QuantizedRows quantized{};
  std::vector<int64_t> shape;

  Operand operand(const char* name, py::object owner) const;
};

// values (V, D) of int8, or (V, 16 * ceil(D / 32)) of uint8 for 4 bits, and scales (V, ceil(D / group)) of float32 or float16; the
// elements of a row side by side.
StoredWeight quantized_weight(const py::array& values, const py::array& scales, int64_t width, int bits, int64_t group);
// blocks (V, D / 32 * 34) of uint8: for each 32 elements a float16 scale and 32 int8.
StoredWeight q8_0_weight(const py::array& blocks);
// bits (V, D) of uint16, any strides.
StoredWeight bfloat16_weight(const py::array& bits);

// The object as an operand, or nothing where it is no such weight.
std::optional<Operand> stored_operand(const char* name, py::handle object);

}  // namespace lmhead
