// One function a topic, each in the file of its name.
#pragma once

#include <pybind11/pybind11.h>

namespace lmhead {

void bind_logits(pybind11::module_& m);
void bind_top_k(pybind11::module_& m);
void bind_sample(pybind11::module_& m);
void bind_softmax(pybind11::module_& m);
void bind_cross_entropy(pybind11::module_& m);
void bind_linear_cross_entropy(pybind11::module_& m);
void bind_scores(pybind11::module_& m);
void bind_stored_weight(pybind11::module_& m);
void bind_quantize(pybind11::module_& m);
void bind_norm(pybind11::module_& m);
void bind_runtime(pybind11::module_& m);
void bind_screen(pybind11::module_& m);
void bind_lm_head(pybind11::module_& m);
void bind_roofs(pybind11::module_& m);
void bind_filters(pybind11::module_& m);

}  // namespace lmhead
