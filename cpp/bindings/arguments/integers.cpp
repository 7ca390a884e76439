#include "bindings/arguments/integers.hpp"


namespace lmhead {
namespace {

// One element of 1, 2, 4 or 8 bytes.
uint64_t load(const char* from, ptrdiff_t size, bool is_signed, bool swapped) {
  uint64_t bits = 0;
  for (ptrdiff_t i = 0; i < size; ++i) {
    const auto byte = static_cast<uint8_t>(from[swapped ? i : size - 1 - i]);
    bits = bits << 8 | byte;
  }
  const auto unused = static_cast<unsigned>(64 - 8 * size);
  return is_signed ? static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused) : bits;
}

}  // namespace

bool Integers::is_below(int64_t i, int64_t limit) const {
  return bits[static_cast<size_t>(i)] < static_cast<uint64_t>(limit);  // negative ones are the greatest of all
}

std::string Integers::text(int64_t i) const {
  const uint64_t x = bits[static_cast<size_t>(i)];
  return is_signed ? std::to_string(static_cast<int64_t>(x)) : std::to_string(x);
}

Integers integers_of(const py::array& array) {
  Integers result;
  result.is_signed = array.dtype().kind() != 'u';
  const auto n = static_cast<size_t>(array.size());
  if (n == 0) return result;
  result.bits.reserve(n);
  const ptrdiff_t size = array.itemsize();
  const bool swapped = array.dtype().byteorder() == '>';
  const auto* at = static_cast<const char*>(array.data());
  std::vector<int64_t> index(static_cast<size_t>(array.ndim()));
  while (true) {
    result.bits.push_back(load(at, size, result.is_signed, swapped));
    if (result.bits.size() == n) return result;
    for (size_t axis = index.size(); axis-- > 0;) {
      const auto a = static_cast<py::ssize_t>(axis);
      at += array.strides(a);
      if (++index[axis] < array.shape(a)) break;
      at -= array.shape(a) * array.strides(a);
      index[axis] = 0;
    }
  }
}

IntegerMatch::IntegerMatch(const py::int_& value, bool is_signed) {
  int overflow = 0;
  const long long x = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow == 0) {
    possible_ = is_signed || x >= 0;
    bits_ = static_cast<uint64_t>(x);
  } else if (overflow > 0 && !is_signed) {
    bits_ = PyLong_AsUnsignedLongLong(value.ptr());
    possible_ = !PyErr_Occurred();
    PyErr_Clear();
  }
}

}  // namespace lmhead
