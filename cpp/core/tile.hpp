// The unit every consumer sees: adjusted logits of some rows for a run of ids that starts at a block boundary.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/float_range.hpp"
#include "core/row_kernels.hpp"

namespace lmhead {

template <class T>
struct Tile {
  T* logits;
  ptrdiff_t stride;   // elements from row to row
  int64_t first_row;  // of the call's rows
  int64_t n_rows;
  int64_t first_id;   // a multiple of kBlockIds
  int64_t n_ids;

  T* row(int64_t r) const { return logits + r * stride; }
};

// bias, softcap and scale of a call; null, 0 and 1 where there is none.
template <class T>
struct Adjust {
  const T* bias = nullptr;
  double softcap = 0;
  double scale = 1;

  bool none() const { return !bias && softcap == 0 && scale == 1; }

  // The same for logits of n listed rows of the weight, side by side from id 0 on; their biases go to `gathered`.
  Adjust listed(const int64_t* weight_rows, int64_t n, T* gathered) const {
    Adjust adjust = *this;
    if (!bias) return adjust;
    for (int64_t i = 0; i < n; ++i) gathered[i] = bias[weight_rows[i]];
    adjust.bias = gathered;
    return adjust;
  }

  void operator()(const KernelTable& table, const Tile<T>& tile) const {
    if (none()) return;
    const bool widen = needs_double();
    for (int64_t r = 0; r < tile.n_rows; ++r) {
      const T* row_bias = bias ? bias + tile.first_id : nullptr;
      if (widen) in_double(table, tile.row(r), row_bias, tile.n_ids);
      else row_kernels<T>(table).adjust({tile.row(r), row_bias, tile.n_ids, softcap, scale});
    }
  }

  // The derivative at n raw logits from first_id on.
  void slopes(const KernelTable& table, const T* raw, int64_t first_id, int64_t n, T* out) const {
    const T* row_bias = bias ? bias + first_id : nullptr;
    if (!needs_double()) return row_kernels<T>(table).adjust_slopes({const_cast<T*>(raw), row_bias, n, softcap, scale}, out);
    double wide[kBlockIds], wide_bias[kBlockIds], slopes_of_run[kBlockIds];
    for (int64_t first = 0; first < n; first += kBlockIds) {
      const int64_t count = std::min(kBlockIds, n - first);
      for (int64_t i = 0; i < count; ++i) {
        wide[i] = raw[first + i];
        wide_bias[i] = row_bias ? row_bias[first + i] : 0;
      }
      table.f64.adjust_slopes({wide, row_bias ? wide_bias : nullptr, count, softcap, scale}, slopes_of_run);
      for (int64_t i = 0; i < count; ++i) out[first + i] = static_cast<T>(slopes_of_run[i]);
    }
  }

 private:
  bool needs_double() const { return sizeof(T) == 4 && (beyond_float(softcap) || beyond_float(scale)); }

  void in_double(const KernelTable& table, T* logits, const T* row_bias, int64_t n) const {
    double wide[kBlockIds], wide_bias[kBlockIds];
    for (int64_t first = 0; first < n; first += kBlockIds) {
      const int64_t count = std::min(kBlockIds, n - first);
      for (int64_t i = 0; i < count; ++i) {
        wide[i] = logits[first + i];
        wide_bias[i] = row_bias ? row_bias[first + i] : 0;
      }
      table.f64.adjust({wide, row_bias ? wide_bias : nullptr, count, softcap, scale});
      for (int64_t i = 0; i < count; ++i) logits[first + i] = static_cast<T>(wide[i]);
    }
  }
};

}  // namespace lmhead
