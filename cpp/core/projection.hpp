// The producer `project`: logits of prepared hidden rows against a run of weight rows, whatever the weight's storage.
// It knows layouts and which kernel fits; it refuses to know threads, blocks and what the logits are for.
#pragma once

#include "core/rows.hpp"

namespace lmhead {

// How the weight of a call reaches the register tile.
enum class WeightPath {
  direct,   // rows are contiguous, or quantised under few hidden rows: read in place
  columns,  // ids are contiguous (stored as (D, V)) and there are few hidden rows: lanes run along the ids
  packed,   // a few ids at a time are converted to contiguous float32 (float64) rows in scratch
};

// Blocks of ids whose runs of a (D, V) weight are fetched together (4 KiB of float32), so a task has as many.
constexpr int64_t kBlocksPerRun = 4;

struct ProjectionScratch {
  Buffer<char> packed;
  Buffer<char> temporary;
  Buffer<char> sums;
  Buffer<const void*> pointers;
};

class Projection {
 public:
  // hidden (N, D) and weight (V, D); both must outlive this object.
  Projection(const KernelTable& table, const Rows& hidden, const Rows& weight);

  int64_t n_rows() const { return hidden_.n_rows; }
  int64_t n_ids() const { return weight_.n_rows; }
  int64_t width() const { return hidden_.width; }
  WeightPath path() const { return path_; }

  // Prepared hidden rows stand side by side, hidden_stride() bytes each.
  ptrdiff_t hidden_stride() const { return hidden_stride_; }
  void prepare_row(int64_t row, void* to, Buffer<char>& temporary) const;

  // out[i] = logit of one prepared row and id ids[i]: the bits that project() gives.
  void project_list(const void* prepared, const int64_t* ids, int64_t n_ids, void* out, ProjectionScratch& scratch) const {
    project_list(prepared, 1, ids, n_ids, 0, out, n_ids, scratch);
  }
  // The same of several prepared rows: out[r * out_stride + i]. ids[n_ids .. n_ids + n_ahead) are likely to be asked for next. No other
  // row of the weight is read, but one stored as (D, V), whose ids share cache lines, may be read between ids that stand close together.
  void project_list(const void* prepared, int64_t n_rows, const int64_t* ids, int64_t n_ids, int64_t n_ahead, void* out,
                    ptrdiff_t out_stride, ProjectionScratch& scratch) const;

  // out[r * out_stride + i] = logit of prepared row r and id first_id + i.
  void project(const void* prepared, int64_t n_rows, int64_t first_id, int64_t n_ids, void* out, ptrdiff_t out_stride,
               ProjectionScratch& scratch) const;

 private:
  void project_rows(const void* prepared, int64_t n_rows, const void* const* weight_rows, int64_t n_ids, int64_t n_ahead, bool scattered,
                    void* out, ptrdiff_t out_stride) const;
  void project_columns(const void* prepared, int64_t n_rows, int64_t first_id, int64_t n_ids, void* out, ptrdiff_t out_stride,
                       ProjectionScratch& scratch) const;
  int64_t stretch(const int64_t* ids, int64_t n_ids, int64_t most) const;
  void pack(int64_t first_id, int64_t n_ids, ProjectionScratch& scratch) const;
  void pack_columns(int64_t first_id, int64_t n_ids, ProjectionScratch& scratch) const;
  int64_t ids_per_pack() const;

  const KernelTable& table_;
  const Rows& hidden_;
  const Rows& weight_;
  WeightPath path_;
  RowKind kind_;               // of the kernel
  RowLayout layout_;           // of prepared hidden rows, and of packed weight rows
  bool columns_contiguous_;    // the weight is stored as (D, V)
  int64_t kernel_width_;       // D, or D filled up to whole pairs groups where packed rows are
  ptrdiff_t hidden_stride_;    // bytes
  ptrdiff_t packed_stride_;    // bytes
};

}  // namespace lmhead
