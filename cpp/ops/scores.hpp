// Scores of hidden states and of given logits. Arguments have been checked: shapes agree, ids are ids, nothing overlaps.
#pragma once

#include <vector>

#include "consumers/scores.hpp"
#include "ops/loss.hpp"

namespace lmhead {

struct ScoreOptions {
  HeadOptions head;
  double temperature = 1;
};

// Which rows are scored, at which places and for which ids: no `counted.ids` where there are no targets, and no weights of tokens.
struct Scored {
  Counted counted;
  std::vector<int64_t> chosen;  // (n_chosen) for all rows, or (n_places, n_chosen)
  bool chosen_for_all = true;
};

// `allowed` is of all rows.
void logits_scores(const Rows& hidden, const Rows& weight, const ScoreOptions& options, const Allowed& allowed, const Scored& scored,
                   const ScoresTarget& out, int threads);
void scores(const Rows& logits, const ScoreOptions& options, const Allowed& allowed, const Scored& scored, const ScoresTarget& out, int threads);

}  // namespace lmhead
