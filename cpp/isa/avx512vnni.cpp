// Intel Cascade Lake (2019), AMD Zen 4 (2022): x86-64-v4 with AVX512-VNNI.
#include "simd/avx512.hpp"

#include "isa/tables.hpp"
#include "kernels/make_table.inl.hpp"

const lmhead::KernelTable* lmhead::table_avx512vnni() {
  static constexpr KernelTable table = make_table("avx512vnni");
  return &table;
}
