// The unit every consumer sees: adjusted logits of some rows for a run of ids that starts at a block boundary.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/table.hpp"

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

  void operator()(const KernelTable& table, const Tile<T>& tile) const {
    if (none()) return;
    for (int64_t r = 0; r < tile.n_rows; ++r)
      row_kernels<T>(table).adjust({tile.row(r), bias ? bias + tile.first_id : nullptr, tile.n_ids, softcap, scale});
  }
};

}  // namespace lmhead
