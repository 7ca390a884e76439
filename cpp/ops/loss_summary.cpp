#include "ops/loss_summary.hpp"

#include <algorithm>
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

}  // namespace

LossSummary::LossSummary(const Counted& counted, const LossOptions& options) : counted_(counted), options_(options) {
  if (options.reduction != Reduction::mean) return;
  by_ = z_by_ = options.num_items;
  if (options.num_items != 0) return;
  for (size_t i = 0; i < counted.token_weight.size(); ++i) {
    const double weight = counted.token_weight[i];
    by_ += (options.class_weight && !counted.ids.empty() ? options.class_weight[counted.ids[i]] : 1) * weight;
    z_by_ += weight;
  }
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
  double total = 0, z_total = 0, hits = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const RowLoss& loss = losses[i];
    const int64_t place = counted_.places[i];
    const double cross_entropy = counted_.token_weight[i] * loss.cross_entropy;
    const double z_loss = counted_.token_weight[i] * z_loss_of(loss, options_.lse_square_scale);
    total += cross_entropy;
    z_total += z_loss;
    hits += loss.argmax == best[i];
    put<T>(out.per_token, place, cross_entropy + z_loss);
    put<T>(out.z_loss, place, z_loss);
    put<T>(out.logsumexp, place, loss.log_sum_exp);
    put<T>(out.entropy, place, loss.entropy);
    if (out.argmax) out.argmax[place] = loss.argmax;
  }
  const auto ratio = [&](double sum, double divisor) { return divisor == 0 ? options_.empty : sum / divisor; };
  LossScalars scalars;
  scalars.z_loss = options_.lse_square_scale == 0 ? 0 : ratio(z_total, z_by_);
  scalars.loss = ratio(total, by_) + scalars.z_loss;
  scalars.accuracy = ratio(hits, double(losses.size()));
  return scalars;
}

template LossScalars LossSummary::write<float>(const std::vector<RowLoss>&, const std::vector<int64_t>&, const LossTarget&) const;
template LossScalars LossSummary::write<double>(const std::vector<RowLoss>&, const std::vector<int64_t>&, const LossTarget&) const;

}  // namespace lmhead
