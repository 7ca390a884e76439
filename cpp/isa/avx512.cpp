// Intel Skylake-X (2017), AMD Zen 4 (2022): x86-64-v4.
#include "simd/avx512.hpp"

#include "isa/tables.hpp"
#include "kernels/make_table.inl.hpp"

const lmhead::KernelTable* lmhead::table_avx512() {
  static constexpr KernelTable table = make_table("avx512");
  return &table;
}
