// A weight copied once into rows that lie side by side, in its own dtype and native byte order, in huge pages where they pay.
#pragma once

#include "core/rows.hpp"

namespace lmhead {

// Pages are touched first by the threads that copy, in the same runs of rows that the passes over a head hand out.
Buffer<char> prepared_copy(const KernelTable& table, const Rows& weight, int threads);

// Rows of bytes, `stride` apart.
Buffer<char> prepared_bytes(const char* rows, int64_t n_rows, int64_t row_bytes, ptrdiff_t stride, int threads);

}  // namespace lmhead
