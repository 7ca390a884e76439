// Which kernel table is in use.
#pragma once

#include <string>
#include <vector>

#include "kernels/table.hpp"

namespace lmhead {

// Names, plainest first.
std::vector<std::string> compiled_isas();
std::vector<std::string> usable_isas();

// The table of LMHEAD_ISA, or the best usable one. Throws std::invalid_argument with the list for a name that does not fit.
void choose_table(const char* name);
const KernelTable& table();

}  // namespace lmhead
