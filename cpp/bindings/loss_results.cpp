#include "bindings/loss_results.hpp"

namespace lmhead {
namespace {

py::array floats(const std::vector<int64_t>& shape, bool doubles, void*& target) {
  py::array array = doubles ? py::array(py::array_t<double>(shape)) : py::array(py::array_t<float>(shape));
  target = array.mutable_data();
  return array;
}

}  // namespace

LossResults::LossResults(const LossArguments& arguments, const std::vector<int64_t>& shape, bool doubles)
    : stats_(arguments.stats), doubles_(doubles), reduction_(arguments.options.reduction) {
  const bool none = reduction_ == Reduction::none;
  if (stats_ || none) per_token_ = floats(shape, doubles, target_.per_token);
  if (!stats_) return;
  logsumexp_ = floats(shape, doubles, target_.logsumexp);
  entropy_ = floats(shape, doubles, target_.entropy);
  if (none) z_loss_ = floats(shape, doubles, target_.z_loss);
  py::array_t<int64_t> argmax(shape);
  target_.argmax = argmax.mutable_data();
  argmax_ = argmax;
}

// Rounded here: NumPy would warn where a sum is beyond float32.
py::object LossResults::scalar(double x) const {
  return (doubles_ ? py::dtype::of<double>() : py::dtype::of<float>()).attr("type")(doubles_ ? x : static_cast<double>(static_cast<float>(x)));
}

py::object LossResults::finish(const LossScalars& scalars) const {
  const bool none = reduction_ == Reduction::none;
  const py::object loss = none ? py::object(per_token_) : scalar(scalars.loss);
  if (!stats_) return loss;
  const py::object float64 = py::dtype::of<double>().attr("type");
  return py::make_tuple(loss, per_token_, logsumexp_, none ? py::object(z_loss_) : scalar(scalars.z_loss), argmax_, float64(scalars.accuracy),
                        entropy_, float64(scalars.skipped_mass));
}

}  // namespace lmhead
