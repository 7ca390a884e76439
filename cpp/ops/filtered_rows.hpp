// Given logits as the filters of a draw see them: -inf where an id is not allowed, edits, and then what the filters keep.
// It knows one row at a time; it refuses to know what it is looked at for.
#pragma once

#include <memory>
#include <vector>

#include "consumers/kept.hpp"
#include "core/allowed.hpp"
#include "core/draw.hpp"
#include "core/parallel.hpp"
#include "core/read.hpp"
#include "dispatch/tables.hpp"

namespace lmhead {

// see(worker, row, logits, kept) for every row, from any worker.
template <class T, class See>
void filtered_rows(const Rows& logits, const Allowed& allowed, const SampleOptions& options, int threads, const See& see) {
  const KernelTable& kernels = table();
  const Reader<T> reader(kernels, logits);
  struct Scratch {
    explicit Scratch(const KernelTable& t) : kept(t) {}
    Kept<T> kept;
    Buffer<T> row;
    Buffer<char> temporary;
  };
  std::vector<std::unique_ptr<Scratch>> scratch;
  for (int worker = 0; worker < threads; ++worker) scratch.push_back(std::make_unique<Scratch>(kernels));
  run_tasks(threads, logits.n_rows, [&](int worker, int64_t row) {
    Scratch& mine = *scratch[static_cast<size_t>(worker)];
    const RowEdits edits = options.edits_of(row);
    T* copy = mine.row.reserve(logits.width);
    const T* y = copy;
    if (allowed.all() && edits.none()) y = reader.read(row, 0, logits.width, copy, mine.temporary);
    else {
      copy_row(kernels, logits, row, 0, logits.width, RowLayout::wide, copy, mine.temporary);
      allowed.clear(row, copy, 0, logits.width);
      edits.apply(copy, 0);
    }
    mine.kept.filter_row(y, logits.width, options.rows[static_cast<size_t>(row)].filters);
    see(worker, row, y, mine.kept);
  });
}

}  // namespace lmhead
