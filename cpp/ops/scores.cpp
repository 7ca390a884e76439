// logits_scores and scores: the logits of targets and chosen ids first, one by one; then one pass over the vocabulary, in which each
// row's blocks, the count of what is better than its target and the list of the best are kept.
#include "ops/scores.hpp"

#include "core/fold.hpp"
#include "core/read.hpp"
#include "dispatch/tables.hpp"

namespace lmhead {
namespace {

// Elements below which one thread is done before a second has woken.
constexpr double kSerialElements = 1 << 15;
// Ids of given logits that are looked at three times while they are in the first-level cache: 16 KiB of float32.
constexpr int64_t kIdsAtOnce = 16 * kBlockIds;
// Hidden rows of one task of single logits: each is prepared for the sake of a few.
constexpr int64_t kRowsPerTask = 8;

template <class T>
LossSpec<T> spec_of(const ScoreOptions& options) {
  LossSpec<T> spec;
  spec.adjust = {static_cast<const T*>(options.head.bias), options.head.softcap, options.head.scale};
  spec.temperature = options.temperature;
  spec.entropy = spec.argmax = true;
  return spec;
}

// What a pass over one kind of rows needs, and what both kinds have in common.
template <class Candidate>
struct Scoring {
  using T = typename Candidate::T;

  const KernelTable& kernels = table();
  const Scored& scored;
  const Allowed allowed;
  const LossSpec<T> spec;
  const LossBlocks<T> blocks;
  const ScoreResults<Candidate> results;

  Scoring(const ScoreOptions& options, const Allowed& of_all_rows, const Scored& which, int64_t n_ids, const ScoresTarget& out)
      : scored(which), allowed(of_all_rows.some_rows(which.counted.rows)), spec(spec_of<T>(options)), blocks(kernels, spec, n_ids),
        results(blocks, out, allowed) {
    results.clear();
  }

  int64_t n_rows() const { return static_cast<int64_t>(scored.counted.rows.size()); }
  int64_t place(int64_t i) const { return scored.counted.places[static_cast<size_t>(i)]; }
  int64_t target(int64_t i) const { return results.has_targets() ? scored.counted.ids[static_cast<size_t>(i)] : -1; }

  // single(ids, n, logits): for row i's target, and for its chosen ids.
  template <class Single>
  void single_logits(int64_t i, Single&& single) const {
    if (results.has_targets()) single(&scored.counted.ids[static_cast<size_t>(i)], 1, results.target_logit(place(i)));
    const int64_t n = results.n_chosen();
    if (n > 0) single(scored.chosen.data() + (scored.chosen_for_all ? 0 : place(i) * n), n, results.chosen_logits(place(i)));
  }
};

// Logits of some ids of one prepared row, -inf where they are not allowed.
template <class T>
class ListedLogits {
 public:
  ListedLogits(const KernelTable& table, const Projection& projection, const Adjust<T>& adjust, const Allowed& allowed)
      : table_(table), projection_(projection), adjust_(adjust), allowed_(allowed) {}

  void operator()(int64_t row, const void* prepared, const int64_t* ids, int64_t n, T* out, ProjectionScratch& scratch) const {
    for (int64_t first = 0; first < n; first += kBlockIds)
      some(row, prepared, ids + first, std::min(kBlockIds, n - first), out + first, scratch);
  }

 private:
  void some(int64_t row, const void* prepared, const int64_t* ids, int64_t n, T* out, ProjectionScratch& scratch) const {
    int64_t places[kBlockIds], weight_rows[kBlockIds], count = 0;
    T bias[kBlockIds], logits[kBlockIds];
    for (int64_t i = 0; i < n; ++i) {
      out[i] = -std::numeric_limits<T>::infinity();
      if (!allowed_.has(row, ids[i])) continue;
      places[count] = i;
      weight_rows[count++] = allowed_.weight_row(ids[i]);
    }
    if (count == 0) return;
    projection_.project_list(prepared, weight_rows, count, logits, scratch);
    adjust_.listed(weight_rows, count, bias)(table_, Tile<T>{logits, count, row, 1, 0, count});
    for (int64_t i = 0; i < count; ++i) out[places[i]] = logits[i];
  }

  const KernelTable& table_;
  const Projection& projection_;
  const Adjust<T>& adjust_;
  const Allowed& allowed_;
};

template <class Candidate>
void logits_scores_as(const Rows& hidden, const Rows& weight, int64_t n_ids, const ScoreOptions& options, const Allowed& allowed,
                      const Scored& scored, const ScoresTarget& out, int threads) {
  using T = typename Candidate::T;
  const Scoring<Candidate> scoring(options, allowed, scored, n_ids, out);
  const int64_t n = scoring.n_rows();
  const Rows rows = chosen_rows(hidden, scored.counted.rows, 0, n);
  const Projection projection(scoring.kernels, rows, weight);
  const ListedLogits<T> listed(scoring.kernels, projection, scoring.spec.adjust, scoring.allowed);

  struct Scratch {
    Buffer<char> prepared;
    ProjectionScratch projection;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  const int64_t n_single = (scoring.results.has_targets() ? 1 : 0) + scoring.results.n_chosen();
  const bool serial = double(n) * double(n_single) * double(hidden.width) < kSerialWork;
  run_tasks(serial ? 1 : threads, n_single > 0 ? ceil_div(n, kRowsPerTask) : 0, [&](int worker, int64_t task) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    char* prepared = mine.prepared.reserve(projection.hidden_stride());
    for (int64_t i = kRowsPerTask * task; i < std::min(n, kRowsPerTask * (task + 1)); ++i) {
      projection.prepare_row(i, prepared, mine.projection.temporary);
      scoring.single_logits(i, [&](const int64_t* ids, int64_t count, T* to) { listed(i, prepared, ids, count, to, mine.projection); });
    }
  });

  Scores<Candidate> consumer(scoring.kernels, scoring.blocks, scoring.results, scored.counted.places, scored.counted.ids, threads);
  fold<T>(scoring.kernels, projection, scoring.spec.adjust, consumer, threads, scoring.allowed);
}

template <class Candidate>
class RowScores {
 public:
  using T = typename Candidate::T;

  RowScores(const Rows& logits, const ScoreOptions& options, const Allowed& allowed, const Scored& scored, const ScoresTarget& out)
      : logits_(logits), scoring_(options, allowed, scored, logits.width, out), reader_(scoring_.kernels, logits) {}

  void run(int threads) {
    const bool serial = double(scoring_.n_rows()) * double(logits_.width) < kSerialElements;
    std::vector<Scratch> scratch(static_cast<size_t>(serial ? 1 : threads));
    run_tasks(serial ? 1 : threads, scoring_.n_rows(), [&](int worker, int64_t i) { one_row(i, scratch[static_cast<size_t>(worker)]); });
  }

 private:
  struct Scratch {
    ScoreParts<Candidate> parts;
    PartialRows<T> partials;
    Buffer<T> run, factors;
    Buffer<char> temporary;
  };

  void one_row(int64_t i, Scratch& mine) const {
    const int64_t row = scoring_.scored.counted.rows[static_cast<size_t>(i)], place = scoring_.place(i), target = scoring_.target(i);
    scoring_.single_logits(i, [&](const int64_t* ids, int64_t n, T* to) {
      T copy;
      for (int64_t j = 0; j < n; ++j)
        to[j] = scoring_.allowed.has(i, ids[j]) ? *reader_.read(row, ids[j], 1, &copy, mine.temporary) : -std::numeric_limits<T>::infinity();
    });
    mine.parts.start(scoring_.results.top_n());
    mine.partials.reserve(1, scoring_.blocks.n_blocks(), scoring_.spec, false);
    const BlockPartials<T> partials = mine.partials.row(0);
    for (int64_t id = 0; id < logits_.width; id += kIdsAtOnce) {
      const int64_t n = std::min(kIdsAtOnce, logits_.width - id);
      mine.parts.add(scoring_.kernels, scoring_.blocks, scoring_.results, i, place, target, allowed_logits(i, row, id, n, mine), n, id, partials);
    }
    scoring_.results.put(i, place, target, partials, mine.factors.reserve(scoring_.blocks.n_blocks()), mine.parts.n_better, mine.parts.best);
  }

  const T* allowed_logits(int64_t i, int64_t row, int64_t id, int64_t n, Scratch& mine) const {
    T* run = mine.run.reserve(kIdsAtOnce);
    const T* z = reader_.read(row, id, n, run, mine.temporary);
    if (scoring_.allowed.all()) return z;
    if (z != run) std::copy(z, z + n, run);
    scoring_.allowed.clear(i, run, id, n);
    return run;
  }

  const Rows& logits_;
  const Scoring<Candidate> scoring_;
  const Reader<T> reader_;
};

}  // namespace

void logits_scores(const Rows& hidden, const Rows& weight, const ScoreOptions& options, const Allowed& allowed, const Scored& scored,
                   const ScoresTarget& out, int threads) {
  const int64_t n_ids = allowed.all() ? weight.n_rows : allowed.n_ids();
  if (weight.dtype == DType::float64) logits_scores_as<LongCandidate<double>>(hidden, weight, n_ids, options, allowed, scored, out, threads);
  else if (n_ids < kShortIds) logits_scores_as<ShortCandidate>(hidden, weight, n_ids, options, allowed, scored, out, threads);
  else logits_scores_as<LongCandidate<float>>(hidden, weight, n_ids, options, allowed, scored, out, threads);
}

void scores(const Rows& logits, const ScoreOptions& options, const Allowed& allowed, const Scored& scored, const ScoresTarget& out, int threads) {
  if (logits.dtype == DType::float64) RowScores<LongCandidate<double>>(logits, options, allowed, scored, out).run(threads);
  else if (logits.width < kShortIds) RowScores<ShortCandidate>(logits, options, allowed, scored, out).run(threads);
  else RowScores<LongCandidate<float>>(logits, options, allowed, scored, out).run(threads);
}

}  // namespace lmhead
