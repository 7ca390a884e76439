// Keeps the logits: computed in place where the output's rows are contiguous, copied element by element elsewhere.
#pragma once

#include <cstring>

#include "core/fold.hpp"
#include "core/target.hpp"

namespace lmhead {

template <class T>
class Write {
 public:
  explicit Write(const Target& out) : out_(out) {}

  void begin(int64_t, int64_t) {}
  void finish(int64_t, int64_t) {}
  int64_t bytes_per_row() const { return 0; }

  Place<T> place(int64_t first_row, int64_t first_id) const {
    if (!out_.plain<T>()) return {};
    return {reinterpret_cast<T*>(out_.row(first_row)) + first_id, out_.row_stride / static_cast<ptrdiff_t>(sizeof(T))};
  }

  void tile(int, const Tile<T>& tile) const {
    if (out_.plain<T>()) return;
    for (int64_t r = 0; r < tile.n_rows; ++r) out_.put(tile.first_row + r, tile.first_id, tile.row(r), tile.n_ids);
  }

 private:
  const Target& out_;
};

}  // namespace lmhead
