// What crosses from portable code into an ISA: plain structs of pointers and sizes, and one table of functions a table.
// A call is microseconds of work on one tile; nothing here is called per element.
// It knows the signatures; it refuses to know which table is in use and who calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmhead {

// How the rows of a weight are stored where a kernel reads them, and what the hidden rows beside them look like.
enum class RowKind : int {
  f32,         // float32 rows, hidden float32
  f16,         // float16 rows widened on load, hidden float32
  bf16,        // bfloat16 rows widened on load, hidden float32
  bf16_pairs,  // bfloat16 rows, hidden bfloat16 prepared as float32 [16 odd | 16 even] per 32 elements
  bf16_dot,    // bfloat16 rows, hidden bfloat16 as it is; `vdpbf16ps`
  f64,         // float64 rows, hidden float64
};
constexpr int kRowKinds = 6;

// Ids per block over which every reduction along the vocabulary is defined, counted from id 0.
constexpr int64_t kBlockIds = 256;

// Logits of `n_rows` prepared hidden rows against `n_ids` weight rows: out[i * out_stride + j] = <hidden_i, weight_j>.
// Hidden rows are contiguous, zero-padded to a multiple of 32 elements, `hidden_stride` bytes apart.
struct ProjectTile {
  const void* hidden;
  ptrdiff_t hidden_stride;
  int64_t n_rows;
  const void* const* weight_rows;  // [n_ids + n_ahead], contiguous along D, any alignment
  int64_t n_ids;
  int64_t n_ahead;                 // rows that are likely to be asked for next: fetched, not read
  bool scattered;                  // they do not follow each other in memory
  int64_t width;                   // D
  void* out;                       // float32, or float64 for RowKind::f64
  ptrdiff_t out_stride;            // elements
};

// The same for a weight whose ids are contiguous (stored as (D, V)) and one hidden row; `sums` holds 16 * n_ids elements.
struct ProjectColumns {
  const void* hidden;
  const char* weight;         // element (id 0, d 0)
  ptrdiff_t width_stride;     // bytes from d to d + 1
  int64_t n_ids;
  int64_t width;
  void* sums;
  void* out;
};

// Rows of integers in groups that share a scale: an element is scale * q, rounded once to float32. Strides are bytes, of any
// size and alignment. Storage of 4 bits: 16 bytes for each 32 elements of a group, those of the last 32 always there; the low
// nibbles are elements 0 to 15, the high ones 16 to 31, in two's complement.
struct QuantizedRows {
  const char* values;                                     // of the first row's first group
  const char* scales;
  ptrdiff_t values_row_stride, values_group_stride;
  ptrdiff_t scales_row_stride, scales_group_stride;
  int64_t group;                                          // elements; a multiple of 32, or a whole row
  int bits;                                               // 8 or 4; 0: none of all this
  bool half_scales;                                       // float16, else float32
};

// Logits of prepared float32 hidden rows against rows [first_id, first_id + n_ids), as ProjectTile has them.
struct ProjectQuantized {
  const void* hidden;
  ptrdiff_t hidden_stride;
  int64_t n_rows;
  QuantizedRows weight;
  int64_t first_id;
  int64_t n_ids;
  int64_t width;
  float* out;
  ptrdiff_t out_stride;  // elements
};

// One logit after another becomes what the model means by it: + bias, softcap * tanh(z / softcap), * scale.
struct AdjustRow {
  void* logits;
  const void* bias;  // null, or one per id
  int64_t n;
  double softcap;    // 0: none
  double scale;      // 1: none
};

// Log-sum-exp of some ids: their maximum, and sum of exp((x - max) / temperature) without the maximum's own 1.
// Ids among which there is NaN, or whose maximum is infinite, have rest 0 and tell everything by `max`.
template <class T>
struct LogSum {
  T max;
  T rest;
};

// The same of many blocks of ids, side by side.
template <class T>
struct BlockSums {
  T* maxima;
  T* rests;
};

// Where a part of a row of results goes: elements [first, last) of its n. Streaming stores pass the caches and are followed by
// one `stream_fence`; a part that does not begin or end the row then begins or ends at a cache line of `data`.
template <class T>
struct RowPart {
  T* data;  // of the row
  int64_t n;
  int64_t first, last;
  bool streaming;
};

// A stretch of logits as the gradient of a loss.
template <class T>
struct GradientRow {
  const T* logits;
  int64_t n;
  T max;                // of the whole row
  T inverse_temperature;
  T factor;             // of exp((x - max) / temperature)
  T desired_factor;     // of desired[i], which is subtracted
  const T* desired;     // null: 1
  const T* slopes;      // null: 1
  T* out;
};

// What a contraction multiplies: coefficients and panels of float32, float64, or pairs of bfloat16 that are summed in float32.
enum class ContractionKind : int { f32, f64, bf16 };
constexpr int kContractionKinds = 3;

// One line of a panel: 64 columns of float32 or of bfloat16 pairs, 32 columns of float64. Four registers of AVX-512, so that a
// tile of 6 rows has 24 accumulators.
constexpr int64_t kPanelBytes = 256;

// Storages that rows of a contraction are packed from.
enum class PanelSource : int { f32, f64, f16, bf16, bf16_pairs };
constexpr int kPanelSources = 5;

// Some columns of `n_rows` rows as panels: line k is of row k, or the pairs of rows 2k and 2k + 1 (a missing partner is 0). Columns
// of the last panel that do not exist are 0.
struct PackPanels {
  const void* const* rows;  // [n_rows], their first column
  int64_t n_rows;
  int64_t n_columns;
  char* out;                // line 0 of the first panel
  ptrdiff_t panel_stride;   // bytes
};

// Memory that is read soon, fetched to L2 while a kernel computes: rows of `per_row` cache lines, `left` lines in all.
struct Ahead {
  const char* row;
  ptrdiff_t row_stride;  // bytes
  int64_t per_row;
  int64_t left;
};

// out[r][c] += sum over k of coefficient(r, k) * panel[k][c], each element one chain of FMAs, k ascending; of bfloat16 pairs the odd
// element and then the even one.
struct Contraction {
  const char* coefficients;
  ptrdiff_t coefficient_stride;  // bytes from row to row; those of a row side by side. `contract_block`: unused, see there
  const char* panels;            // [ceil(n_columns / columns of a line)][n_terms] lines
  ptrdiff_t panel_stride;        // bytes
  int64_t n_terms;               // pairs of bfloat16
  int64_t n_rows;
  int64_t n_columns;
  char* out;                     // float32, or float64
  ptrdiff_t out_stride;          // bytes
  bool from_zero;                // instead of from what is in `out`
  Ahead ahead;                   // what the next call reads
};

// A sum of rows: out[c] += coefficients[k] * rows[k][c], k ascending; from 0 where asked.
template <class T>
struct ActiveSum {
  const T* coefficients;
  const T* const* rows;
  int64_t n_terms;
  int64_t n_columns;
  T* out;
  bool from_zero;
};

// A power of two that `weighted_gap` is small by.
constexpr double kGapScale = 0x1p-10;

template <class T>
struct RowKernels {
  void (*adjust)(const AdjustRow&);
  // Sums of the blocks of a run of ids that starts at a block boundary. exps: null, or [n] values exp((x - its block's max) /
  // temperature), apart from `logits`.
  void (*block_sums)(const T* logits, int64_t n, T inverse_temperature, T* exps, const BlockSums<T>& sums);
  // Blocks in id order to one row; factors: null, or [n_blocks] values exp((block max - row max) / temperature).
  LogSum<T> (*merge_sums)(const BlockSums<T>& blocks, int64_t n_blocks, T inverse_temperature, T* factors);
  // out[i] = exps[i] * factors[i / kBlockIds] * normaliser
  void (*scale_exps)(const T* exps, const T* factors, T normaliser, const RowPart<T>& out);
  // out[i] = (logits[i] - max) * inverse_temperature - log_sum
  void (*shift_logits)(const T* logits, T max, T inverse_temperature, T log_sum, const RowPart<T>& out);
  // Places of a block (n <= kBlockIds) that hold more than `threshold`, or NaN, in ascending order; returns how many.
  int64_t (*select)(const T* logits, int64_t n, T threshold, uint16_t* places);
  // The derivative of `adjust` at raw logits.
  void (*adjust_slopes)(const AdjustRow& raw, void* slopes);
  // Of a block: kGapScale times the sum of weights[i] * (max - x[i]) / temperature, 0 where the weight is; weights null: 1.
  T (*weighted_gap)(const T* logits, int64_t n, T max, T inverse_temperature, const T* weights);
  // The first place that holds `value` (NaN: the first NaN), or n.
  int64_t (*find_first)(const T* logits, int64_t n, T value);
  void (*gradient_row)(const GradientRow<T>&);
  // Places (n <= kBlockIds) and values of what is not 0; returns how many.
  int64_t (*find_active)(const T* values, int64_t n, uint16_t* places, T* found);
  void (*contract_active)(const ActiveSum<T>&);
  // Of a block: entries of `gradient` where |exp((x - max) / temperature) * normaliser - y| < eps become 0; the sum of those.
  T (*filter_gradient)(const T* logits, int64_t n, T max, T inverse_temperature, T normaliser, T y, T eps, T* gradient);
  // How many of n are greater than `value` or NaN; of the first n_before also those that equal it. For NaN: the NaNs of the first n_before.
  int64_t (*count_better)(const T* logits, int64_t n, T value, int64_t n_before);
};

// The certified screen (core/screen.hpp): a weight as signed bytes q with a scale an id, stored as q + 128 in blocks of 16 ids: chunk c of
// a block is [16 ids][elements 4c .. 4c + 3], 64 bytes, so that a block is one stream. Hidden rows are 16-bit numbers, `words` of
// [n_chunks][n_rows][4] of them, or, where `part_bytes` is 1, of [n_chunks][n_rows][high, low][4] bytes with number = 256 * high + low.
constexpr int64_t kScreenBlock = 16;

// One hidden row: an estimate is step * scale * <q, numbers>, and its other end lies error * by_error + norm * by_norm + constant above it
// (below, where these are negative).
struct ScreenRow {
  float step;
  float by_error, by_norm, constant;
};

struct ScreenScan {
  const uint8_t* plane;  // blocks of 16 ids
  int64_t n_blocks;
  int64_t n_chunks;
  const float *scales, *errors, *norms;  // one an id
  const void* words;
  // [n_rows][n_corrections]: -128 times the sum of a row's numbers in each `segment` chunks, modulo 2^32; where part_bytes is 1, of its high
  // parts and of its low parts.
  const int32_t* corrections;
  int64_t n_corrections;
  const ScreenRow* rows;
  int64_t n_rows;
  float *estimates, *ends;  // [n_rows] rows of 16 * n_blocks
  ptrdiff_t stride;         // elements
};

// A row of weights in signed bytes: sums of ((w - scale * q) / scale)^2 and of q^2.
struct ScreenSquares {
  float error, norm;
};

struct ScreenKernels {
  bool outruns_fma;  // products take half the time of float32's
  int part_bytes;    // 1: bytes are multiplied as they are; 2: 16-bit numbers
  int64_t segment;   // chunks whose sums are kept modulo 2^32
  void (*scan)(const ScreenScan&);
  float (*max_abs)(const float* row, int64_t n);  // NaN where an element is not finite
  // q + 128 of whole groups of 16 elements, absent ones 128. The scale and its inverse are normal numbers.
  ScreenSquares (*make_row)(const float* row, int64_t n, float scale, uint8_t* out);
};

struct KernelTable {
  const char* isa;
  void (*project[kRowKinds])(const ProjectTile&);  // null where the ISA has no such instruction
  void (*project_columns[kRowKinds])(const ProjectColumns&);
  RowKernels<float> f32;
  RowKernels<double> f64;
  void (*pack_panels[kPanelSources])(const PackPanels&);
  void (*contract_rows[kContractionKinds])(const Contraction&);
  // The same with coefficient(r, k) in place r of [n_terms][kBlockIds].
  void (*contract_block[kContractionKinds])(const Contraction&);
  void (*stream_fence)();
  void (*widen_f16)(const uint16_t* in, int64_t n, float* out);
  void (*widen_bf16)(const uint16_t* in, int64_t n, float* out);
  void (*widen_bf16_pairs)(const uint16_t* in, int64_t n, float* out);  // writes whole groups of 32, zero-padded
  void (*narrow_bf16)(const float* in, int64_t n, uint16_t* out);       // nearest even; `out` may begin where `in` does
  void (*transpose_words)(const uint32_t* in, ptrdiff_t in_stride, int64_t rows, int64_t columns, uint32_t* out, ptrdiff_t out_stride);
  // Elements [first, first + n) of a row; first: a multiple of 32.
  void (*dequantize)(const QuantizedRows& rows, int64_t row, int64_t first, int64_t n, float* out);
  void (*project_quantized)(const ProjectQuantized&);
  double (*read_all)(const void* data, int64_t bytes, int streams);     // a load-only pass; bytes read
  double (*multiply_f32)(int64_t rounds);                               // flops issued by a loop of independent FMAs
  double (*multiply_bf16)(int64_t rounds);                              // null without `vdpbf16ps`
  ScreenKernels screen;
};

}  // namespace lmhead
