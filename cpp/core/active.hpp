// The two products of the backward pass where a filter left few coefficients: lists of terms instead of tiles. The same chains
// of FMAs as in core/contraction, without the terms that are 0; whatever the storage of the operands, so that it changes no bit.
// It knows lists and blocks; it refuses to know the filter.
#pragma once

#include <vector>

#include "core/parallel.hpp"
#include "core/read.hpp"
#include "core/row_kernels.hpp"

namespace lmhead {

// out_rows[t] += sum over ids of g[t][v] * weight[v]: a block of ids is widened once for all rows of a task, and stays in cache.
template <class T>
void sum_active_ids(const KernelTable& table, const T* g, ptrdiff_t stride, int64_t n, const Rows& weight, T* const* out_rows, int threads) {
  constexpr int64_t rows_per_task = 64;
  struct Scratch {
    Buffer<T> rows;
    Buffer<char> temporary;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  run_tasks(threads, ceil_div(n, rows_per_task), [&](int worker, int64_t task) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    const Reader<T> reader(table, weight);
    T* widened = mine.rows.reserve(std::min(kBlockIds, weight.n_rows) * weight.width);
    uint16_t places[kBlockIds];
    T values[kBlockIds];
    const T *rows[kBlockIds], *listed[kBlockIds];
    for (int64_t id = 0; id < weight.n_rows; id += kBlockIds) {
      const int64_t n_block = std::min(kBlockIds, weight.n_rows - id);
      reader.read_rows(id, n_block, widened, mine.temporary, rows);
      for (int64_t t = task * rows_per_task; t < std::min(n, (task + 1) * rows_per_task); ++t) {
        const int64_t found = row_kernels<T>(table).find_active(g + t * stride + id, n_block, places, values);
        if (found == 0) continue;
        for (int64_t k = 0; k < found; ++k) listed[k] = rows[places[k]];
        row_kernels<T>(table).contract_active({values, listed, found, weight.width, out_rows[t], false});
      }
    }
  });
}

// Lists of tokens for each id of a block.
template <class T>
class ActiveTokens {
 public:
  // block: g as [tokens][kBlockIds]
  void find(const KernelTable& table, const T* block, int64_t n_tokens, int64_t n_ids) {
    n_tokens_ = n_tokens;
    tokens_.reserve(kBlockIds * n_tokens);
    values_.reserve(kBlockIds * n_tokens);
    std::fill(counts_, counts_ + kBlockIds, 0);
    uint16_t places[kBlockIds];
    T values[kBlockIds];
    for (int64_t t = 0; t < n_tokens; ++t) {
      const int64_t found = row_kernels<T>(table).find_active(block + t * kBlockIds, n_ids, places, values);
      for (int64_t k = 0; k < found; ++k) {
        const int64_t at = places[k] * n_tokens + counts_[places[k]]++;
        tokens_[at] = static_cast<int32_t>(t);
        values_[at] = values[k];
      }
    }
  }
  // out += sum over the tokens of id i; `hidden`: [tokens] rows.
  void add(const KernelTable& table, int64_t i, const T* const* hidden, int64_t width, T* out, bool from_zero) {
    const T** rows = rows_.reserve(n_tokens_);
    for (int64_t k = 0; k < counts_[i]; ++k) rows[k] = hidden[tokens_[i * n_tokens_ + k]];
    row_kernels<T>(table).contract_active({values_.get() + i * n_tokens_, rows, counts_[i], width, out, from_zero});
  }

 private:
  int64_t n_tokens_ = 0;
  int64_t counts_[kBlockIds] = {};
  Buffer<int32_t> tokens_;
  Buffer<T> values_;
  Buffer<const T*> rows_;
};

}  // namespace lmhead
