// The canonical width: every sum over a row is kept in 16 lanes of float32 (8 of float64), lane j taking the elements
// that are j modulo 16, and reduced by one tree: lanes 8 apart, then 4, 2 and 1 apart. An ISA whose register is narrower
// holds the lanes in several parts, so all tables add in the same order and return the same bits.
// It knows how parts make lanes; it refuses to know what is summed.
#pragma once  // after a vocabulary, which defines VF and VD

#include <cstddef>

namespace lmhead {
namespace {

template <int value_> struct Constant { static constexpr int value = value_; };  // a size known at compile time, as an argument

template <class T> struct VectorOf;
template <> struct VectorOf<float> { using type = VF; };
template <> struct VectorOf<double> { using type = VD; };
template <class T> using Vector = typename VectorOf<T>::type;

template <class T> constexpr int kCanonical = 64 / sizeof(T);
template <class T> constexpr int kLanes = sizeof(Vector<T>) / sizeof(T);
template <class T> constexpr int kParts = kCanonical<T> / kLanes<T>;

template <class T>
inline T reduce_parts(const Vector<T>* parts) {
  Vector<T> sums[kParts<T>];
  for (int p = 0; p < kParts<T>; ++p) sums[p] = parts[p];
  for (int apart = kParts<T> / 2; apart > 0; apart /= 2)
    for (int p = 0; p < apart; ++p) sums[p] = add(sums[p], sums[p + apart]);
  return reduce_add(sums[0]);
}

}  // namespace
}  // namespace lmhead
