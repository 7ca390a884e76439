// From the losses of rows to what a caller gets: weights of tokens, means, and the coefficients of the gradient.
// It knows reductions; it refuses to know logits.
#pragma once

#include "consumers/loss_blocks.hpp"
#include "ops/loss.hpp"

namespace lmhead {

// What a row's gradient is multiplied by: d loss / d cross entropy, and d loss / d log-sum-exp by way of the z-loss.
struct RowCoefficients {
  double cross_entropy = 0;
  double log_sum_exp = 0;
};

class LossSummary {
 public:
  LossSummary(const Counted& counted, const LossOptions& options);

  // Rows that reach a gradient, in ascending order: those that count, or none where the means divide by 0.
  const std::vector<int64_t>& differentiated() const { return no_gradient() ? none_ : counted_.rows; }
  RowCoefficients coefficients(int64_t i, const RowLoss& loss) const;
  // Everything but the gradient; sums over rows in their order, in float64.
  template <class T>
  LossScalars write(const std::vector<RowLoss>& losses, const std::vector<int64_t>& best, const LossTarget& out) const;

 private:
  bool no_gradient() const { return by_ == 0 && (z_by_ == 0 || options_.lse_square_scale == 0); }

  const std::vector<int64_t> none_;
  const Counted& counted_;
  const LossOptions& options_;
  double by_ = 1, z_by_ = 1;
};

}  // namespace lmhead
