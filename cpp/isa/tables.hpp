// The one symbol each ISA object exports.
#pragma once

namespace lmhead {

struct KernelTable;

const KernelTable* table_scalar();
const KernelTable* table_avx2();
const KernelTable* table_avx512();
const KernelTable* table_avx512vnni();
const KernelTable* table_avx512bf16();

}  // namespace lmhead
