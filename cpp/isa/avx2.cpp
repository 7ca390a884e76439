// Intel Haswell (2013), AMD Excavator (2015) and later: x86-64-v3.
#include "simd/avx2.hpp"

#include "isa/tables.hpp"
#include "kernels/make_table.inl.hpp"

const lmhead::KernelTable* lmhead::table_avx2() {
  static constexpr KernelTable table = make_table("avx2");
  return &table;
}
