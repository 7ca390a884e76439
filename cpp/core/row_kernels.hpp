// The kernels of a table for one element type.
#pragma once

#include "kernels/table.hpp"

namespace lmhead {

template <class T> const RowKernels<T>& row_kernels(const KernelTable& table);
template <> inline const RowKernels<float>& row_kernels<float>(const KernelTable& table) { return table.f32; }
template <> inline const RowKernels<double>& row_kernels<double>(const KernelTable& table) { return table.f64; }

}  // namespace lmhead
