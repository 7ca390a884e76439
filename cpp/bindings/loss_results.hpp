// A loss as Python sees it: a NumPy scalar or an array, and the numbers beside it.
#pragma once

#include "bindings/arguments/loss_options.hpp"

namespace lmhead {

class LossResults {
 public:
  // Arrays of `shape` for what each position gives, as far as somebody will see it.
  LossResults(const LossArguments& arguments, const std::vector<int64_t>& shape, bool doubles);

  const LossTarget& target() const { return target_; }
  // The loss; with stats a tuple of the seven fields of LossStats and the skipped mass.
  py::object finish(const LossScalars& scalars) const;

 private:
  py::object scalar(double x) const;

  bool stats_, doubles_;
  Reduction reduction_;
  py::array per_token_, logsumexp_, z_loss_, argmax_, entropy_;
  LossTarget target_;
};

}  // namespace lmhead
