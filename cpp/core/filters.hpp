// What a sampler keeps of a row before it draws.
#pragma once

#include <cstdint>

namespace lmhead {

enum class FilterOrder { hf, vllm, llama_cpp };

struct Filters {
  double temperature = 1;
  int64_t top_k = 0;  // 0: off
  double top_p = 1, min_p = 0, typical_p = 1;
  FilterOrder order = FilterOrder::hf;
};

}  // namespace lmhead
