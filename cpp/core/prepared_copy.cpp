#include "core/prepared_copy.hpp"

#include <algorithm>

#include "core/page_tasks.hpp"
#include "core/parallel.hpp"

namespace lmhead {
namespace {

// Less than this is copied before a second thread has woken.
constexpr int64_t kSerialBytes = 1024 * 1024;
// Ids of a (D, V) weight that are copied together: their runs are whole cache lines, and what is written stays in L2.
constexpr int64_t kIdsTogether = 32;

template <class U>
void transpose(const char* from, ptrdiff_t stride, int64_t n_ids, int64_t width, U* to) {
  for (int64_t d = 0; d < width; ++d)
    for (int64_t i = 0; i < n_ids; ++i)
      std::memcpy(to + i * width + d, from + d * stride + i * static_cast<ptrdiff_t>(sizeof(U)), sizeof(U));
}

}  // namespace

Buffer<char> prepared_copy(const KernelTable& table, const Rows& weight, int threads) {
  const ptrdiff_t item = item_size(weight.dtype), row_bytes = weight.width * item;
  Buffer<char> copy(weight.n_rows * row_bytes);
  if (weight.n_rows * row_bytes == 0) return copy;
  const bool columns = !weight.contiguous() && !weight.swapped && weight.row_stride == item && weight.offsets.empty();
  const PageTasks tasks(weight.n_rows, row_bytes);
  std::vector<Buffer<char>> temporary(static_cast<size_t>(threads));
  run_tasks(weight.n_rows * row_bytes < kSerialBytes ? 1 : threads, tasks.size(), [&](int worker, int64_t task) {
    const int64_t first = tasks.first(task), end = tasks.end(task);
    char* to = copy.get() + first * row_bytes;
    if (!columns) {
      for (int64_t row = first; row < end; ++row, to += row_bytes)
        copy_row(table, weight, row, 0, weight.width, RowLayout::stored, to, temporary[static_cast<size_t>(worker)]);
      return;
    }
    for (int64_t row = first; row < end; row += kIdsTogether, to += kIdsTogether * row_bytes) {
      const int64_t n = std::min(kIdsTogether, end - row);
      const char* from = weight.row(row);
      if (item == 8) transpose(from, weight.element_stride, n, weight.width, reinterpret_cast<uint64_t*>(to));
      else if (item == 4) transpose(from, weight.element_stride, n, weight.width, reinterpret_cast<uint32_t*>(to));
      else transpose(from, weight.element_stride, n, weight.width, reinterpret_cast<uint16_t*>(to));
    }
  });
  return copy;
}

Buffer<char> prepared_bytes(const char* rows, int64_t n_rows, int64_t row_bytes, ptrdiff_t stride, int threads) {
  Buffer<char> copy(n_rows * row_bytes);
  if (n_rows * row_bytes == 0) return copy;
  const PageTasks tasks(n_rows, row_bytes);
  run_tasks(n_rows * row_bytes < kSerialBytes ? 1 : threads, tasks.size(), [&](int, int64_t task) {
    for (int64_t row = tasks.first(task); row < tasks.end(task); ++row)
      std::memcpy(copy.get() + row * row_bytes, rows + row * stride, static_cast<size_t>(row_bytes));
  });
  return copy;
}

}  // namespace lmhead
