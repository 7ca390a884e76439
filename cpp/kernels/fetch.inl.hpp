// Memory that is read soon, asked for in small portions while registers multiply.
// It knows lines; it refuses to know what they hold.
#pragma once

#include "kernels/table.hpp"  // after a vocabulary

namespace lmhead {
namespace {

constexpr int64_t kLineBytes = 64;

inline Ahead rows_ahead(const char* row, ptrdiff_t stride, int64_t rows, int64_t bytes) {
  const int64_t per_row = (bytes + kLineBytes - 1) / kLineBytes;
  return {row, stride, per_row, rows * per_row};
}

// Goes through the lines of an Ahead at an even pace: some of them at each of `calls` calls of fetch(), none at the first `idle`.
class Fetcher {
 public:
  Fetcher(const Ahead& ahead, int64_t calls, int64_t idle)
      : row_(ahead.row), ahead_(ahead), idle_(idle), per_call_(calls > idle ? (ahead.left + calls - idle - 1) / (calls - idle) : 0) {}
  // always_inline: GCC 12 takes a function that only prefetches for one without effect, and drops calls of it.
  __attribute__((always_inline)) void fetch() {
    if (idle_ > 0) {
      --idle_;
      return;
    }
    for (int64_t i = 0; i < per_call_ && ahead_.left > 0; ++i, --ahead_.left) {
      prefetch_l2(row_ + line_ * kLineBytes);
      if (++line_ == ahead_.per_row) {
        line_ = 0;
        row_ += ahead_.row_stride;
      }
    }
  }

 private:
  const char* row_;
  Ahead ahead_;
  int64_t idle_;
  int64_t per_call_;
  int64_t line_ = 0;
};

}  // namespace
}  // namespace lmhead
