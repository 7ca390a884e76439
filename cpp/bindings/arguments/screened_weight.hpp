// A screen beside the weight of a call.
#pragma once

#include "bindings/arguments/operand.hpp"
#include "core/screen.hpp"

namespace lmhead {

// A bound holds for the weight that the screen was made from alone; what can be seen of another one is refused.
void check_made_from(const Screen& screen, const Operand& weight);

}  // namespace lmhead
