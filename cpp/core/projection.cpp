#include "core/projection.hpp"

#include <algorithm>

namespace lmhead {
namespace {

// From so many hidden rows on, widening half-precision weights once into scratch is cheaper than in every tile.
constexpr int64_t kRowsWorthWidening = 16;

// Up to so many hidden rows a (D, V) weight is read with lanes along the ids, a pass over the block for each row; more
// rows are worth transposing the block once.
constexpr int64_t kRowsByColumns = 4;

// Up to so many hidden rows quantised weights are dequantised in registers, once for every few of them; for more, once into scratch.
constexpr int64_t kRowsByRegisters = 16;

// Packed rows of a row-stored weight: what fits in a quarter of a 1 MiB L2 beside the hidden rows.
constexpr int64_t kPackedBytes = 256 * 1024;
// Packed rows of a (D, V) weight: a whole block of ids, so that memory is read in runs of 1 KiB, or equal parts of one of about
// this size. Half as much would stay in L2, but its shorter runs cost more; four times as much is 4 % slower at D = 4096.
constexpr int64_t kPackedColumnsBytes = 1152 * 1024;

// Ids of a (D, V) weight that are converted one by one before it is asked again whether those that follow stand together.
constexpr int64_t kScatteredIds = 16;

// Rows after a run of ids that are fetched at its end, for workers mostly go on there: one tile of every ISA.
constexpr int64_t kRowsAhead = 6;

// Rows that must follow each other in memory, on average, so that reading one after the other is a stream.
constexpr int64_t kRowsOfStream = 16;

// Elements beyond the width that keep rows of a power-of-two width out of one set of the first-level cache.
constexpr int64_t kRowPadding = 16;

// Whether so few of these rows follow each other in memory that they are no stream.
bool scattered(const int64_t* ids, int64_t n_ids) {
  int64_t gaps = 0;
  for (int64_t i = 1; i < n_ids; ++i) gaps += ids[i] != ids[i - 1] + 1;
  return kRowsOfStream * gaps > n_ids;
}

}  // namespace

Projection::Projection(const KernelTable& table, const Rows& hidden, const Rows& weight)
    : table_(table), hidden_(hidden), weight_(weight) {
  const bool both_bf16 = hidden.dtype == DType::bfloat16 && weight.dtype == DType::bfloat16;
  const bool doubles = weight.dtype == DType::float64;
  columns_contiguous_ = !weight.is_quantized() && !weight.swapped && !weight.contiguous() && weight.offsets.empty() &&
                        (weight.row_stride == item_size(weight.dtype) || weight.n_rows <= 1);
  const bool has_dot = table.project[static_cast<int>(RowKind::bf16_dot)] != nullptr;
  const bool widening_pays = item_size(weight.dtype) == 2 && hidden.n_rows >= kRowsWorthWidening && !(both_bf16 && has_dot);
  path_ = columns_contiguous_ && hidden.n_rows <= kRowsByColumns ? WeightPath::columns
          : weight.is_quantized() ? (hidden.n_rows <= kRowsByRegisters ? WeightPath::direct : WeightPath::packed)
          : weight.contiguous() && !widening_pays                ? WeightPath::direct
                                                                 : WeightPath::packed;
  const bool dot = both_bf16 && has_dot && path_ != WeightPath::columns;
  layout_ = dot ? RowLayout::stored : both_bf16 ? RowLayout::bf16_pairs : RowLayout::wide;
  kind_ = doubles                             ? RowKind::f64
          : dot                               ? RowKind::bf16_dot
          : path_ == WeightPath::packed       ? RowKind::f32
          : both_bf16                         ? RowKind::bf16_pairs
          : weight.dtype == DType::bfloat16   ? RowKind::bf16
          : weight.dtype == DType::float16    ? RowKind::f16
                                              : RowKind::f32;
  const int64_t width = hidden.width;
  const bool pairs_packed = path_ == WeightPath::packed && layout_ == RowLayout::bf16_pairs;
  kernel_width_ = pairs_packed ? round_up(width, 32) : width;
  hidden_stride_ = (round_up(width, 32) + kRowPadding) * layout_item_size(layout_, hidden.dtype);
  packed_stride_ = (round_up(width, 32) + kRowPadding) * layout_item_size(layout_, weight.dtype);
}

void Projection::prepare_row(int64_t row, void* to, Buffer<char>& temporary) const {
  const ptrdiff_t item = layout_item_size(layout_, hidden_.dtype);
  copy_row(table_, hidden_, row, 0, hidden_.width, layout_, to, temporary);
  const int64_t written = layout_ == RowLayout::bf16_pairs ? round_up(hidden_.width, 32) : hidden_.width;
  std::memset(static_cast<char*>(to) + written * item, 0, static_cast<size_t>(hidden_stride_ - written * item));
}

void Projection::project_rows(const void* prepared, int64_t n_rows, const void* const* weight_rows, int64_t n_ids, int64_t n_ahead,
                              bool scattered, void* out, ptrdiff_t out_stride) const {
  table_.project[static_cast<int>(kind_)]({prepared, hidden_stride_, n_rows, weight_rows, n_ids, n_ahead, scattered, kernel_width_, out, out_stride});
}

void Projection::project_columns(const void* prepared, int64_t n_rows, int64_t first_id, int64_t n_ids, void* out,
                                 ptrdiff_t out_stride, ProjectionScratch& scratch) const {
  const ptrdiff_t item = kind_ == RowKind::f64 ? 8 : 4;
  void* sums = scratch.sums.reserve(16 * n_ids * item);
  for (int64_t r = 0; r < n_rows; ++r)
    table_.project_columns[static_cast<int>(kind_)]({static_cast<const char*>(prepared) + r * hidden_stride_, weight_.row(first_id),
                                                     weight_.element_stride, n_ids, weight_.width, sums,
                                                     static_cast<char*>(out) + r * out_stride * item});
}

// A block of a (D, V) weight, transposed by 32 elements of the width at a time. What is transposed is 32-bit words: float32
// elements (the odd ones first where rows are wanted in pairs), or two neighbours of a half-precision row.
void Projection::pack_columns(int64_t first_id, int64_t n_ids, ProjectionScratch& scratch) const {
  constexpr int64_t depth = 32;
  const ptrdiff_t stored = item_size(weight_.dtype);
  const bool first_of_run = first_id % (kBlocksPerRun * kBlockIds) == 0;
  const int64_t fetched_ids = first_of_run ? std::min(kBlocksPerRun * kBlockIds, weight_.n_rows - first_id) : n_ids;
  const auto column = [&](int64_t d) { return weight_.data + first_id * stored + d * weight_.element_stride; };
  char* packed = scratch.packed.get();
  if (kind_ == RowKind::f64) {
    for (int64_t d = 0; d < weight_.width; ++d)
      for (int64_t i = 0; i < n_ids; ++i) std::memcpy(packed + i * packed_stride_ + d * 8, column(d) + i * 8, 8);
    return;
  }
  auto* lines = reinterpret_cast<uint32_t*>(scratch.temporary.reserve(depth * n_ids * 4));
  const bool pairs = layout_ == RowLayout::bf16_pairs, in_words = layout_ == RowLayout::stored;
  for (int64_t d = 0; d < weight_.width; d += depth) {
    const int64_t deep = std::min(depth, weight_.width - d);
    const int64_t n_lines = in_words ? ceil_div(deep, 2) : pairs ? depth : deep;
    // Each element of the width is a run of its own, far from the last: the next group's runs are asked for now. Memory likes
    // longer runs than a block's, so the first of several blocks asks for all of them, and the others find theirs in cache.
    for (int64_t j = d + depth; j < std::min(d + 2 * depth, weight_.width); ++j)
      for (ptrdiff_t byte = 0; byte < fetched_ids * stored; byte += static_cast<ptrdiff_t>(kCacheLine)) __builtin_prefetch(column(j) + byte, 0, 2);
    for (int64_t j = 0; j < n_lines; ++j) {
      uint32_t* line = lines + j * n_ids;
      const int64_t at = in_words ? 2 * j : !pairs ? j : j < 16 ? 2 * j + 1 : 2 * (j - 16);
      if (at >= deep) {
        std::memset(line, 0, static_cast<size_t>(n_ids) * 4);
      } else if (in_words) {
        pair_elements(column(d + at), at + 1 < deep ? column(d + at + 1) : nullptr, n_ids, line);
      } else {
        convert_run(table_, column(d + at), n_ids, weight_.dtype, RowLayout::wide, line);
      }
    }
    table_.transpose_words(lines, n_ids, n_lines, n_ids, reinterpret_cast<uint32_t*>(packed) + (in_words ? d / 2 : d), packed_stride_ / 4);
  }
}

int64_t Projection::ids_per_pack() const {
  const int64_t most = std::max<int64_t>(1, (columns_contiguous_ ? kPackedColumnsBytes : kPackedBytes) / packed_stride_);
  const int64_t even = ceil_div(kBlockIds, ceil_div(kBlockIds, most));
  // 12 ids are whole register tiles of every ISA (6, 2); a block's last 4 are tiles of 2.
  return std::min(kBlockIds, round_up(even, 12));
}

void Projection::pack(int64_t first_id, int64_t n_ids, ProjectionScratch& scratch) const {
  char* packed = scratch.packed.reserve(n_ids * packed_stride_);
  if (columns_contiguous_) return pack_columns(first_id, n_ids, scratch);
  for (int64_t i = 0; i < n_ids; ++i)
    copy_row(table_, weight_, first_id + i, 0, weight_.width, layout_, packed + i * packed_stride_, scratch.temporary);
}

// How many ids, of a list's first ones, a (D, V) weight gives cheaper as one run of ids than one by one; 0: none. A run is read in whole
// cache lines, an id takes a line for every element of the width.
int64_t Projection::stretch(const int64_t* ids, int64_t n_ids, int64_t most) const {
  if (!columns_contiguous_) return 0;
  int64_t n = 1;
  while (n < n_ids && ids[n] > ids[n - 1] && ids[n] - ids[0] < most) ++n;
  const int64_t in_line = static_cast<int64_t>(kCacheLine) / item_size(weight_.dtype);
  return n * in_line >= ids[n - 1] - ids[0] + 1 ? n : 0;
}

// Rows that are read in place are fetched while those before them are multiplied. Others are converted, a few at a time: those of a
// (D, V) weight by the run where many stand together, else element by element. The kernel of rows takes the same steps as the one along
// the ids.
void Projection::project_list(const void* prepared, int64_t n_rows, const int64_t* ids, int64_t n_ids, int64_t n_ahead, void* out,
                              ptrdiff_t out_stride, ProjectionScratch& scratch) const {
  if (path_ == WeightPath::direct && weight_.is_quantized()) {
    for (int64_t i = 0, n = 1; i < n_ids; i += n, n = 1) {
      while (i + n < n_ids && ids[i + n] == ids[i] + n) ++n;
      table_.project_quantized({prepared, hidden_stride_, n_rows, weight_.quantized, ids[i], n, weight_.width,
                                static_cast<float*>(out) + i, out_stride});
    }
    return;
  }
  const void** rows = scratch.pointers.reserve(n_ids + n_ahead);
  if (path_ == WeightPath::direct) {
    for (int64_t i = 0; i < n_ids + n_ahead; ++i) rows[i] = weight_.row(ids[i]);
    return project_rows(prepared, n_rows, rows, n_ids, n_ahead, scattered(ids, n_ids), out, out_stride);
  }
  const bool columns = path_ == WeightPath::columns;
  const RowLayout layout = columns ? RowLayout::stored : layout_;
  const ptrdiff_t item = kind_ == RowKind::f64 ? 8 : 4;
  const int64_t step = std::max<int64_t>(1, kPackedBytes / packed_stride_);
  const int64_t most = columns ? kBlocksPerRun * kBlockIds : columns_contiguous_ ? ids_per_pack() : 0;
  for (int64_t i = 0, n = 0; i < n_ids; i += n) {
    char* to = static_cast<char*>(out) + i * item;
    n = stretch(ids + i, n_ids - i, most);
    if (n > 0) {
      const int64_t first = ids[i], n_run = ids[i + n - 1] - first + 1;
      if (columns) {
        char* run = scratch.packed.reserve(n_rows * n_run * item);
        project_columns(prepared, n_rows, first, n_run, run, n_run, scratch);
        for (int64_t r = 0; r < n_rows; ++r)
          for (int64_t j = 0; j < n; ++j)
            std::memcpy(to + (r * out_stride + j) * item, run + (r * n_run + ids[i + j] - first) * item, static_cast<size_t>(item));
        continue;
      }
      pack(first, n_run, scratch);
      for (int64_t j = 0; j < n; ++j) rows[j] = scratch.packed.get() + (ids[i + j] - first) * packed_stride_;
    } else {
      n = std::min(columns_contiguous_ ? std::min(step, kScatteredIds) : step, n_ids - i);
      char* packed = scratch.packed.reserve(n * packed_stride_);
      for (int64_t j = 0; j < n; ++j) {
        rows[j] = packed + j * packed_stride_;
        copy_row(table_, weight_, ids[i + j], 0, weight_.width, layout, packed + j * packed_stride_, scratch.temporary);
      }
    }
    project_rows(prepared, n_rows, rows, n, 0, false, to, out_stride);
  }
}

void Projection::project(const void* prepared, int64_t n_rows, int64_t first_id, int64_t n_ids, void* out, ptrdiff_t out_stride,
                         ProjectionScratch& scratch) const {
  if (path_ == WeightPath::columns) return project_columns(prepared, n_rows, first_id, n_ids, out, out_stride, scratch);
  if (path_ == WeightPath::direct && weight_.is_quantized())
    return table_.project_quantized({prepared, hidden_stride_, n_rows, weight_.quantized, first_id, n_ids, weight_.width,
                                     static_cast<float*>(out), out_stride});
  const void** rows = scratch.pointers.reserve(n_ids + kRowsAhead);
  if (path_ == WeightPath::direct) {
    const int64_t n_ahead = std::min(kRowsAhead, weight_.n_rows - first_id - n_ids);
    for (int64_t i = 0; i < n_ids + n_ahead; ++i) rows[i] = weight_.row(first_id + i);
    return project_rows(prepared, n_rows, rows, n_ids, n_ahead, false, out, out_stride);
  }
  const ptrdiff_t item = kind_ == RowKind::f64 ? 8 : 4;
  const int64_t step = ids_per_pack();
  for (int64_t id = 0; id < n_ids; id += step) {
    const int64_t count = std::min(step, n_ids - id);
    pack(first_id + id, count, scratch);
    for (int64_t i = 0; i < count; ++i) rows[i] = scratch.packed.get() + i * packed_stride_;
    project_rows(prepared, n_rows, rows, count, 0, false, static_cast<char*>(out) + id * item, out_stride);
  }
}

}  // namespace lmhead
