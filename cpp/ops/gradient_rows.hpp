// A gradient's rows as T, whatever its caller's array holds: read to be added to, written with one rounding.
// It knows dtypes and strides; it refuses to know what the gradient is of.
#pragma once

#include <algorithm>

#include "core/half.hpp"
#include "core/parallel.hpp"
#include "core/rows.hpp"
#include "ops/loss.hpp"

namespace lmhead {

// Elements of a gradient that one task copies or clears: some ten microseconds.
constexpr int64_t kElementsPerTask = 1 << 16;

template <class T>
class GradientRows {
 public:
  GradientRows(const KernelTable& table, const GradientTarget& gradient) : table_(table), gradient_(gradient) {}

  int64_t n_rows() const { return gradient_.target.n_rows; }
  int64_t width() const { return gradient_.target.width; }
  bool full_precision() const { return gradient_.dtype == kDTypeOf<T>; }
  // Kernels can work on the caller's rows themselves.
  bool direct() const { return full_precision() && gradient_.target.template contiguous_rows<T>(); }
  T* row(int64_t i) const { return reinterpret_cast<T*>(gradient_.target.row(i)); }
  ptrdiff_t row_stride() const { return gradient_.target.row_stride / static_cast<ptrdiff_t>(sizeof(T)); }
  // Direct rows with one stride.
  bool plain() const { return full_precision() && gradient_.target.template plain<T>(); }

  void load(int64_t i, int64_t first, int64_t n, T* to, Buffer<char>& temporary) const {
    const Target& t = gradient_.target;
    const char* from = t.row(i) + first * t.element_stride;
    if (full_precision()) return gather_elements(from, t.element_stride, n, gradient_.dtype, false, to);
    void* run = temporary.reserve(n * item_size(gradient_.dtype));
    gather_elements(from, t.element_stride, n, gradient_.dtype, false, run);
    convert_run(table_, run, n, gradient_.dtype, RowLayout::wide, to);
  }

  void store(int64_t i, int64_t first, int64_t n, const T* from, Buffer<char>& temporary) const {
    const Target& t = gradient_.target;
    if (full_precision()) return t.put(i, first, from, n);
    auto* run = reinterpret_cast<uint16_t*>(temporary.reserve(2 * n));
    if (gradient_.dtype == DType::bfloat16) {
      table_.narrow_bf16(reinterpret_cast<const float*>(from), n, run);
    } else {
      for (int64_t j = 0; j < n; ++j) run[j] = narrow_f16(static_cast<float>(from[j]));
    }
    t.put(i, first, run, n);
  }

  // run(row, temporary) for every row, some rows a task.
  template <class Run>
  void each(int threads, Run&& run) const {
    const int64_t rows_per_task = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, width()));
    std::vector<Buffer<char>> temporary(static_cast<size_t>(threads));
    run_tasks(threads, ceil_div(n_rows(), rows_per_task), [&](int worker, int64_t task) {
      for (int64_t i = task * rows_per_task; i < std::min(n_rows(), (task + 1) * rows_per_task); ++i) run(i, temporary[static_cast<size_t>(worker)]);
    });
  }

  // Every row becomes 0 but for some, in ascending order.
  void clear_except(const std::vector<int64_t>& kept, int threads) const {
    const std::vector<T> zeros(direct() ? 0 : static_cast<size_t>(width()), T(0));
    each(threads, [&](int64_t i, Buffer<char>& temporary) {
      if (std::binary_search(kept.begin(), kept.end(), i)) return;
      if (direct()) std::fill(row(i), row(i) + width(), T(0));
      else store(i, 0, width(), zeros.data(), temporary);
    });
  }

 private:
  const KernelTable& table_;
  const GradientTarget& gradient_;
};

}  // namespace lmhead
