#include "bindings/arguments/screened_weight.hpp"

namespace lmhead {

void check_made_from(const Screen& screen, const Operand& weight) {
  const std::vector<int64_t> made_from{screen.n_ids(), screen.width()};
  const bool quantized = weight.quantized.bits != 0;
  if (quantized || weight.dtype != screen.dtype() || weight.shape != made_from)
    value_error("weight", "the weight that the screen was made from, " + dtype_text(screen.dtype()) + " of shape " + shape_text(made_from),
                (quantized ? "a quantised weight" : dtype_text(weight.dtype)) + " of shape " + shape_text(weight.shape));
}

}  // namespace lmhead
