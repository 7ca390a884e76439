// What an argument takes up in memory, so that no result is written over it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bindings/arguments/errors.hpp"

namespace lmhead {

struct Memory {
  std::string name;             // of the argument
  py::object owner;             // the array, or what else keeps the memory alive
  const char* first = nullptr;  // and one past the last byte that an element may touch; equal for an empty array
  const char* last = nullptr;
};

std::pair<const char*, const char*> extent(const char* data, ptrdiff_t item_size, const std::vector<int64_t>& shape,
                                           const std::vector<ptrdiff_t>& strides);

// Of an array of any dtype.
Memory memory_of(const char* name, const py::array& array);

bool overlap(const Memory& a, const Memory& b);

}  // namespace lmhead
