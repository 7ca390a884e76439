// The two products of the backward pass, with T = float or double the type of results:
//   over the vocabulary   dhidden[t][d] += sum over ids    of g[t][v] * weight[v][d]
//   over the tokens       dweight[v][d] += sum over tokens of g[t][v] * hidden[t][d]
// Each element is one chain of FMAs in ascending order from what is there, so that chunks of tokens, threads, panels and ISA
// change no bit. bfloat16 goes in pairs of terms 2j and 2j + 1, the odd one first: chunks of tokens start at even ones.
// It knows panels, tasks and scratch; it refuses to know losses.
#pragma once

#include <vector>

#include "core/panels.hpp"

namespace lmhead {

// g of a chunk: rows of V ids side by side, of float, double or bfloat16 as the kind says; any alignment of the rows of bfloat16.
struct Coefficients {
  const char* data;
  ptrdiff_t row_stride;  // bytes
};

// dhidden. Scratch: about half a MiB a thread.
template <class T>
class OverIds {
 public:
  // weight (V, D) of float64 for ContractionKind::f64, of bfloat16 for ::bf16; it must outlive this object.
  OverIds(const KernelTable& table, const Rows& weight, ContractionKind kind);
  // out_rows[t][d] of n_rows rows of g; the elements of a row side by side.
  void run(const Coefficients& g, int64_t n_rows, T* const* out_rows, int threads);

 private:
  struct Scratch {
    ReturnedBuffer<char> panels, out;
    Buffer<uint32_t> last;
    PanelScratch packing;
  };
  struct Task {
    int64_t first_row, n_rows;
    int64_t first_panel, n_panels;
  };
  void run_task(const Coefficients& g, const Task& task, T* const* out_rows, Scratch& scratch) const;

  const KernelTable& table_;
  const Rows& weight_;
  ContractionKind kind_;
  Panels panels_;
};

// dweight. Scratch: the chunk's hidden rows once more.
template <class T>
class OverTokens {
 public:
  OverTokens(const KernelTable& table, ContractionKind kind, int64_t width);
  // Rows [first_row, first_row + n_rows) of hidden (N, D) are the tokens of the next runs.
  void pack(const Rows& hidden, int64_t first_row, int64_t n_rows, int threads);
  // For n_ids <= kBlockIds ids, on one thread: out[i][d] of rows that are out_stride elements apart.
  // block: g as [tokens][kBlockIds] of float or double; of bfloat16 as [pairs of tokens][kBlockIds][2], a missing partner 0.
  void run(const void* block, int64_t n_ids, T* out, ptrdiff_t out_stride, bool from_zero) const;

 private:
  const KernelTable& table_;
  ContractionKind kind_;
  int64_t width_;
  int64_t n_terms_ = 0;
  ReturnedBuffer<char> panels_;  // [panels][terms] lines
};

}  // namespace lmhead
