// The element types an operand may have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmhead {

enum class DType { float32, float64, float16, bfloat16 };

constexpr ptrdiff_t item_size(DType dtype) {
  return dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2;
}

template <class T> constexpr DType kDTypeOf = sizeof(T) == 8 ? DType::float64 : DType::float32;

}  // namespace lmhead
