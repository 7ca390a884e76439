// Biases and penalties of single ids: logit_bias, history, output, and what a repetition costs.
// It knows which ids of which rows; it refuses to know logits.
#pragma once

#include "bindings/arguments/per_row.hpp"
#include "ops/sample.hpp"

namespace lmhead {

// Fills options.edits and first_edit. Keyword arguments of `given`: logit_bias, repetition_penalty, presence_penalty, frequency_penalty,
// history, output. Ids are below `vocabulary`.
void add_edits(const py::kwargs& given, const RowShape& rows, int64_t vocabulary, SampleOptions& options);

}  // namespace lmhead
