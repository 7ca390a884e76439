// Arrays of integers of any dtype, exactly: uint64 and int64 never meet halfway.
#pragma once

#include "bindings/arguments/errors.hpp"

namespace lmhead {

// All elements in C order, each as 64 bits: two's complement where `is_signed`.
struct Integers {
  std::vector<uint64_t> bits;
  bool is_signed = true;

  // Whether element i is one of 0 .. limit - 1.
  bool is_below(int64_t i, int64_t limit) const;
  std::string text(int64_t i) const;
};

// Of any integer dtype, strides and byte order.
Integers integers_of(const py::array& array);

// Equality with one Python integer of any size.
class IntegerMatch {
 public:
  IntegerMatch(const py::int_& value, bool is_signed);
  bool operator()(uint64_t bits) const { return possible_ && bits == bits_; }

 private:
  uint64_t bits_ = 0;
  bool possible_ = false;  // some integer of 64 bits is that value
};

}  // namespace lmhead
