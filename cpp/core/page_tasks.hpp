// Rows that are written into new memory, cut into tasks that begin and end about where its huge pages do.
// It knows pages; it refuses to know what the rows are.
#pragma once

#include <algorithm>

#include "core/buffer.hpp"

namespace lmhead {

// Two threads that first touch one page both have it cleared, and what one has just been given is still in its cache: a copy of 1 GiB in
// tasks of half a page takes 86 ms, in whole ones 72.
class PageTasks {
 public:
  // Rows side by side from the start of a `Buffer` on.
  PageTasks(int64_t n_rows, int64_t row_bytes)
      : n_rows_(n_rows), row_bytes_(std::max<int64_t>(1, row_bytes)), page_(n_rows_ * row_bytes_ >= int64_t(kHugeBytes) ? kHugePage : kSmallPages) {}

  int64_t size() const { return ceil_div(n_rows_ * row_bytes_, page_); }
  // The rows that begin in this page.
  int64_t first(int64_t task) const { return std::min(n_rows_, ceil_div(task * page_, row_bytes_)); }
  int64_t end(int64_t task) const { return first(task + 1); }

 private:
  static constexpr int64_t kSmallPages = 128 * 1024;  // what has no huge pages: enough tasks for every thread

  int64_t n_rows_, row_bytes_, page_;
};

}  // namespace lmhead
