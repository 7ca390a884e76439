// The options of a draw: temperature, filters, seeds, logprobs, by row.
#pragma once

#include "bindings/arguments/edits.hpp"

namespace lmhead {

// Fills options.rows: their filters, from temperature, top_k, top_p, min_p, typical_p and order.
void add_filters(const py::kwargs& given, const RowShape& rows, SampleOptions& options);

// Keyword arguments of `given`: temperature, top_k, top_p, min_p, typical_p, seed, position, order, logprobs, top_n, and those of add_edits.
// `vocabulary`: how many ids there are.
SampleOptions sample_options(const py::kwargs& given, const RowShape& rows, int64_t vocabulary);

}  // namespace lmhead
