// Rows of a weight, widened exactly: some by id, or all of a stored one.
#include <algorithm>

#include "core/parallel.hpp"
#include "dispatch/tables.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

// Elements that are worth a task of their own.
constexpr int64_t kTaskElements = 1 << 16;

}  // namespace

void gather(const Rows& weight, const int64_t* ids, int64_t n, void* out, int threads) {
  const KernelTable& kernels = table();
  const int64_t width = weight.width, per_task = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, width));
  const ptrdiff_t row_bytes = width * layout_item_size(RowLayout::wide, weight.dtype);
  std::vector<Buffer<char>> temporary(static_cast<size_t>(threads));
  run_tasks(threads, ceil_div(n, per_task), [&](int worker, int64_t task) {
    for (int64_t i = task * per_task; i < std::min(n, (task + 1) * per_task); ++i)
      copy_row(kernels, weight, ids ? ids[i] : i, 0, width, RowLayout::wide, static_cast<char*>(out) + i * row_bytes,
               temporary[static_cast<size_t>(worker)]);
  });
}

}  // namespace lmhead
