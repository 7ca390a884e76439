// Registers the topics. Arguments arrive from python/lmhead_native, which holds signatures and docstrings: positionally, and those of
// losses, scores and draws by keyword.
#include "bindings/topics.hpp"

PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
  lmhead::bind_runtime(m);  // first: it chooses the kernel table, or fails the import
  lmhead::bind_logits(m);
  lmhead::bind_top_k(m);
  lmhead::bind_sample(m);
  lmhead::bind_softmax(m);
  lmhead::bind_cross_entropy(m);
  lmhead::bind_linear_cross_entropy(m);
  lmhead::bind_scores(m);
  lmhead::bind_stored_weight(m);
  lmhead::bind_quantize(m);
  lmhead::bind_norm(m);
  lmhead::bind_screen(m);
  lmhead::bind_lm_head(m);
  lmhead::bind_roofs(m);
  lmhead::bind_filters(m);
}
