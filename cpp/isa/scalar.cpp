// Any CPU: the baseline the package is compiled for.
#include "simd/scalar.hpp"

#include "isa/tables.hpp"
#include "kernels/make_table.inl.hpp"

const lmhead::KernelTable* lmhead::table_scalar() {
  static constexpr KernelTable table = make_table("scalar");
  return &table;
}
