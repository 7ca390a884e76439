// How large the last cache before memory is.
#pragma once

#include <cstdint>

namespace lmhead {

// The largest cache of the first CPU; 32 MiB where the system does not say.
int64_t last_level_cache_bytes();

}  // namespace lmhead
