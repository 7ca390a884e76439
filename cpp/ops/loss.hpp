// The losses and their gradients. Arguments have been checked: shapes agree, targets are ids, nothing overlaps.
#pragma once

#include <vector>

#include "core/rows.hpp"
#include "core/target.hpp"
#include "ops/ops.hpp"

namespace lmhead {

enum class Reduction { none, sum, mean };

struct LossOptions {
  HeadOptions head;
  double temperature = 1;
  const double* class_weight = nullptr;  // (V,)
  double label_smoothing = 0;
  double lse_square_scale = 0;
  Reduction reduction = Reduction::mean;
  double empty = 0;                      // the mean over nothing: NaN or 0
  double num_items = 0;                  // 0: the weight that counts
};

// The positions that count, n of them in ascending order; no other row is read.
struct Counted {
  int64_t n_places = 0;              // positions of the loss, whether they count or not
  std::vector<int64_t> rows;         // (n) among the rows of hidden or logits
  std::vector<int64_t> places;       // (n) among the positions of the loss
  std::vector<int64_t> ids;          // (n) targets; none where they are probabilities
  std::vector<double> token_weight;  // (n)
  std::vector<double> grad_output;   // (n), or none: 1
  const Rows* probabilities = nullptr;  // (all rows, V): soft targets, row t in place t of its `rows`
  std::vector<int64_t> probability_rows;  // (n) rows of `probabilities`
};

// Where results of each position go: (n_places) of float, or of double where the operands are; null where nobody asked.
struct LossTarget {
  void* per_token = nullptr;   // 0 where a position does not count
  void* logsumexp = nullptr;   // NaN there, and so on
  void* z_loss = nullptr;      // 0
  int64_t* argmax = nullptr;   // -1
  void* entropy = nullptr;     // NaN
};

struct LossScalars {
  double loss = 0;  // with Reduction::none unused, as z_loss
  double z_loss = 0;
  double accuracy = 0;
  double skipped_mass = 0;
};

// A gradient as its caller wants it. With `accumulate` it is added to what is there, else rows that do not count become 0.
struct GradientTarget {
  bool wanted = false;
  Target target;
  DType dtype = DType::float32;  // of its elements: float64 for float64 operands, else float32, float16 or bfloat16
};

struct LinearGradients {
  GradientTarget hidden;  // (rows, D)
  GradientTarget weight;  // (V, D)
  GradientTarget bias;    // one row: (1, V)
  bool accumulate = false;
  double filter_eps = 0;  // 0: exact
};

// `gradients` or `logits_gradient` may be null: the loss alone. chunk_rows 0: the default.
LossScalars linear_cross_entropy(const Rows& hidden, const Rows& weight, const Counted& counted, const LossOptions& options,
                                 int64_t chunk_rows, const LossTarget& out, const LinearGradients* gradients, int threads);
LossScalars cross_entropy(const Rows& logits, const Counted& counted, const LossOptions& options, const LossTarget& out,
                          const GradientTarget* logits_gradient, bool accumulate, int threads);

}  // namespace lmhead
