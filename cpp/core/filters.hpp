// What a sampler keeps of a row before it draws: the parameters of one row.
// It knows numbers; it refuses to know logits.
#pragma once

#include <cstdint>

namespace lmhead {

// hf: top_k, top_p, min_p, typical_p. vllm: min_p, top_k, top_p, typical_p. llama_cpp: top_k, typical_p, top_p, min_p, all with masses
// at temperature 1.
enum class FilterOrder { hf, vllm, llama_cpp };

// Temperatures below the smallest normal float32 mean the argmax.
constexpr double kLeastTemperature = 0x1p-126;

struct Filters {
  double temperature = 1;
  int64_t top_k = 0;  // 0, -1 and V or more: off
  double top_p = 1, min_p = 0, typical_p = 1;
  FilterOrder order = FilterOrder::hf;

  bool greedy() const { return temperature < kLeastTemperature; }
  bool has_top_k(int64_t n_ids) const { return top_k > 0 && top_k < n_ids; }
  bool keeps_all(int64_t n_ids) const { return !greedy() && !has_top_k(n_ids) && top_p >= 1 && min_p <= 0 && typical_p >= 1; }
  // Of the masses that filters compare; the draw has `temperature`.
  double filter_temperature() const { return order == FilterOrder::llama_cpp ? 1 : temperature; }
};

}  // namespace lmhead
