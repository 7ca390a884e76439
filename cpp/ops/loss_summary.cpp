#include "ops/loss_summary.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lmhead {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

double z_loss_of(const RowLoss& loss, double square_scale) {
  return square_scale == 0 ? 0 : square_scale * (loss.log_sum_exp * loss.log_sum_exp);
}

template <class T>
void fill(void* out, int64_t n, double value) {
  if (out) std::fill_n(static_cast<T*>(out), n, static_cast<T>(value));
}
template <class T>
void put(void* out, int64_t place, double value) {
  if (out) static_cast<T*>(out)[place] = static_cast<T>(value);
}

// A sum in float64 that also keeps what its roundings cut off: the mean of equal losses is that loss.
class Sum {
 public:
  void add(double x) {
    const double before = sum_;
    sum_ += x;
    const double added = sum_ - before;
    cut_off_ += (before - (sum_ - added)) + (x - added);
  }
  double value() const { return std::isfinite(sum_) ? sum_ + cut_off_ : sum_; }

 private:
  double sum_ = 0, cut_off_ = 0;
};

}  // namespace

LossSummary::LossSummary(const Counted& counted, const LossOptions& options) : counted_(counted), options_(options) {
  if (options.reduction != Reduction::mean) return;
  by_ = z_by_ = options.num_items;
  if (options.num_items != 0) return;
  Sum by, z_by;
  for (size_t i = 0; i < counted.token_weight.size(); ++i) {
    const double weight = counted.token_weight[i];
    by.add((options.class_weight && !counted.ids.empty() ? options.class_weight[counted.ids[i]] : 1) * weight);
    z_by.add(weight);
  }
  by_ = by.value();
  z_by_ = z_by.value();
}

RowCoefficients LossSummary::coefficients(int64_t i, const RowLoss& loss) const {
  const auto at = static_cast<size_t>(i);
  const double weight = counted_.token_weight[at] * (counted_.grad_output.empty() ? 1 : counted_.grad_output[at]);
  RowCoefficients c;
  if (by_ != 0) c.cross_entropy = weight / by_;
  if (z_by_ != 0 && options_.lse_square_scale != 0) c.log_sum_exp = weight / z_by_ * 2 * options_.lse_square_scale * loss.log_sum_exp;
  return c;
}

template <class T>
LossScalars LossSummary::write(const std::vector<RowLoss>& losses, const std::vector<int64_t>& best, const LossTarget& out) const {
  const int64_t places = counted_.n_places;
  fill<T>(out.per_token, places, 0);
  fill<T>(out.z_loss, places, 0);
  fill<T>(out.logsumexp, places, kNotANumber);
  fill<T>(out.entropy, places, kNotANumber);
  if (out.argmax) std::fill_n(out.argmax, places, -1);
  Sum total, z_total;
  int64_t hits = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const RowLoss& loss = losses[i];
    const int64_t place = counted_.places[i];
    const double cross_entropy = counted_.token_weight[i] * loss.cross_entropy;
    const double z_loss = counted_.token_weight[i] * z_loss_of(loss, options_.lse_square_scale);
    total.add(cross_entropy);
    z_total.add(z_loss);
    hits += best[i] >= 0 && loss.argmax == best[i];
    put<T>(out.per_token, place, cross_entropy + z_loss);
    put<T>(out.z_loss, place, z_loss);
    put<T>(out.logsumexp, place, loss.log_sum_exp);
    put<T>(out.entropy, place, loss.entropy);
    if (out.argmax) out.argmax[place] = loss.argmax;
  }
  const auto ratio = [&](double sum, double divisor) { return divisor == 0 ? options_.empty : sum / divisor; };
  LossScalars scalars;
  scalars.z_loss = options_.lse_square_scale == 0 ? 0 : ratio(z_total.value(), z_by_);
  scalars.loss = ratio(total.value(), by_) + scalars.z_loss;
  scalars.accuracy = ratio(double(hits), double(losses.size()));
  return scalars;
}

template LossScalars LossSummary::write<float>(const std::vector<RowLoss>&, const std::vector<int64_t>&, const LossTarget&) const;
template LossScalars LossSummary::write<double>(const std::vector<RowLoss>&, const std::vector<int64_t>&, const LossTarget&) const;

}  // namespace lmhead
