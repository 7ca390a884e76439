// The producer `read`: given logits as runs of T, in place where they already are that.
// It knows rows; it refuses to know what is done with them.
#pragma once

#include "core/rows.hpp"

namespace lmhead {

template <class T>
class Reader {
 public:
  Reader(const KernelTable& table, const Rows& logits) : table_(table), logits_(logits) {}

  bool in_place(int64_t row) const {
    return logits_.contiguous() && logits_.dtype == kDTypeOf<T> && reinterpret_cast<uintptr_t>(logits_.row(row)) % sizeof(T) == 0;
  }
  const T* row(int64_t row) const { return reinterpret_cast<const T*>(logits_.row(row)); }

  // Ids [first, first + n) of a row: where they lie, or copied to `to`.
  const T* read(int64_t row_index, int64_t first, int64_t n, T* to, Buffer<char>& temporary) const {
    if (in_place(row_index)) return row(row_index) + first;
    copy_row(table_, logits_, row_index, first, n, RowLayout::wide, to, temporary);
    return to;
  }

  // Whole rows [first, first + n): where they lie, or copied side by side to `to`.
  void read_rows(int64_t first, int64_t n, T* to, Buffer<char>& temporary, const T** rows) const {
    const int64_t width = logits_.width;
    for (int64_t i = 0; i < n; ++i) rows[i] = read(first + i, 0, width, to + i * width, temporary);
  }

 private:
  const KernelTable& table_;
  const Rows& logits_;
};

}  // namespace lmhead
