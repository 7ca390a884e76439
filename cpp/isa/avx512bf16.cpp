// Intel Cooper Lake (2020), AMD Zen 4 (2022): x86-64-v4 with AVX512-BF16, and AVX512-VNNI, which all of them have.
#include "simd/avx512.hpp"

#include "isa/tables.hpp"
#include "kernels/make_table.inl.hpp"

const lmhead::KernelTable* lmhead::table_avx512bf16() {
  static constexpr KernelTable table = make_table("avx512bf16");
  return &table;
}
