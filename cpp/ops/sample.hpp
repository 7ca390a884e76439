// Tokens drawn from rows of logits. Arguments have been checked; what depends on the logits themselves comes back as a fault.
#pragma once

#include "core/draw.hpp"
#include "ops/ops.hpp"

namespace lmhead {

// Whether short lists of the best are, as far as one can tell, all that the draws need: rows that are greedy or have a small top_k, and
// those whose first filter is min_p.
constexpr int64_t kScreenedTopK = 64;
bool suits_screen(const SampleOptions& options, int64_t n_ids);

RowFault logits_sample(const Rows& hidden, const Rows& weight, const HeadOptions& head, const Allowed& allowed, const SampleOptions& options,
                       const SampleTarget& out, int threads);
// The same tokens by way of a screen made from this weight, where `suits_screen`. Rows of which more is kept than a list takes are drawn from
// all logits after all.
RowFault screened_sample(const Screen& screen, const Rows& hidden, const Rows& weight, const HeadOptions& head, const SampleOptions& options,
                         const SampleTarget& out, int threads);
RowFault sample(const Rows& logits, const Allowed& allowed, const SampleOptions& options, const SampleTarget& out, int threads);

}  // namespace lmhead
