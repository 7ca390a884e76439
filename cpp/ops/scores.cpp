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
  const LossSpec<T> spec;
  const LossBlocks<T> blocks;
  const ScoreResults<Candidate> results;

  Scoring(const ScoreOptions& options, const Scored& which, int64_t n_ids, const ScoresTarget& out)
      : scored(which), spec(spec_of<T>(options)), blocks(kernels, spec, n_ids), results(blocks, out) {}

  int64_t n_rows() const { return static_cast<int64_t>(scored.counted.rows.size()); }
  int64_t place(int64_t i) const { return scored.counted.places[static_cast<size_t>(i)]; }

  // single(row i, ids, n, logits): for the target, and for the chosen ids.
  template <class Single>
  void single_logits(int64_t i, Single&& single) const {
    if (results.has_targets()) single(i, &scored.counted.ids[static_cast<size_t>(i)], 1, results.target_logit(place(i)));
    const int64_t n = results.n_chosen();
    if (n > 0) single(i, scored.chosen.data() + (scored.chosen_for_all ? 0 : place(i) * n), n, results.chosen_logits(place(i)));
  }
};

// Logits of some ids of one prepared row.
template <class T>
class ListedLogits {
 public:
  ListedLogits(const KernelTable& table, const Projection& projection, const Adjust<T>& adjust)
      : table_(table), projection_(projection), adjust_(adjust) {}

  void operator()(const void* prepared, const int64_t* ids, int64_t n, T* out, ProjectionScratch& scratch) const {
    T bias[kBlockIds];
    for (int64_t first = 0; first < n; first += kBlockIds) {
      const int64_t count = std::min(kBlockIds, n - first);
      projection_.project_list(prepared, ids + first, count, out + first, scratch);
      Adjust<T> adjust = adjust_;
      if (adjust_.bias) {
        for (int64_t i = 0; i < count; ++i) bias[i] = adjust_.bias[ids[first + i]];
        adjust.bias = bias;
      }
      adjust(table_, Tile<T>{out + first, count, 0, 1, 0, count});
    }
  }

 private:
  const KernelTable& table_;
  const Projection& projection_;
  const Adjust<T>& adjust_;
};

template <class Candidate>
void logits_scores_as(const Rows& hidden, const Rows& weight, const ScoreOptions& options, const Scored& scored, const ScoresTarget& out,
                      int threads) {
  using T = typename Candidate::T;
  const Scoring<Candidate> scoring(options, scored, weight.n_rows, out);
  scoring.results.clear();
  const int64_t n = scoring.n_rows();
  const Rows rows = chosen_rows(hidden, scored.counted.rows, 0, n);
  const Projection projection(scoring.kernels, rows, weight);
  const ListedLogits<T> listed(scoring.kernels, projection, scoring.spec.adjust);

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
      scoring.single_logits(i, [&](int64_t, const int64_t* ids, int64_t count, T* logits) { listed(prepared, ids, count, logits, mine.projection); });
    }
  });

  Scores<Candidate> consumer(scoring.kernels, scoring.blocks, scoring.results, scored.counted.places, scored.counted.ids, threads);
  fold<T>(scoring.kernels, projection, scoring.spec.adjust, consumer, threads);
}

template <class Candidate>
void scores_as(const Rows& logits, const ScoreOptions& options, const Scored& scored, const ScoresTarget& out, int threads) {
  using T = typename Candidate::T;
  const Scoring<Candidate> scoring(options, scored, logits.width, out);
  scoring.results.clear();
  const Reader<T> reader(scoring.kernels, logits);
  struct Scratch {
    ScoreParts<Candidate> parts;
    PartialRows<T> partials;
    Buffer<T> run, factors;
    Buffer<char> temporary;
  };
  const bool serial = double(scoring.n_rows()) * double(logits.width) < kSerialElements;
  std::vector<Scratch> scratch(static_cast<size_t>(serial ? 1 : threads));
  run_tasks(serial ? 1 : threads, scoring.n_rows(), [&](int worker, int64_t i) {
    Scratch& mine = scratch[static_cast<size_t>(worker)];
    const int64_t row = scored.counted.rows[static_cast<size_t>(i)], place = scoring.place(i);
    scoring.single_logits(i, [&](int64_t, const int64_t* ids, int64_t n, T* to) {
      for (int64_t j = 0; j < n; ++j) {
        T copy;
        to[j] = *reader.read(row, ids[j], 1, &copy, mine.temporary);
      }
    });
    mine.parts.start(out.top_n);
    mine.partials.reserve(1, scoring.blocks.n_blocks(), scoring.spec, false);
    T* run = mine.run.reserve(kIdsAtOnce);
    for (int64_t id = 0; id < logits.width; id += kIdsAtOnce) {
      const int64_t n = std::min(kIdsAtOnce, logits.width - id);
      const bool targeted = scoring.results.has_targets();
      mine.parts.add(scoring.kernels, scoring.blocks, out.top_n, reader.read(row, id, n, run, mine.temporary), n, id,
                     targeted ? scored.counted.ids[static_cast<size_t>(i)] : -1, targeted ? scoring.results.target_logit(place) : nullptr,
                     mine.partials.row(0));
    }
    scoring.results.put(place, mine.partials.row(0), mine.factors.reserve(scoring.blocks.n_blocks()), mine.parts.n_better, mine.parts.best);
  });
}

}  // namespace

void logits_scores(const Rows& hidden, const Rows& weight, const ScoreOptions& options, const Scored& scored, const ScoresTarget& out, int threads) {
  if (weight.dtype == DType::float64) logits_scores_as<LongCandidate<double>>(hidden, weight, options, scored, out, threads);
  else if (weight.n_rows < kShortIds) logits_scores_as<ShortCandidate>(hidden, weight, options, scored, out, threads);
  else logits_scores_as<LongCandidate<float>>(hidden, weight, options, scored, out, threads);
}

void scores(const Rows& logits, const ScoreOptions& options, const Scored& scored, const ScoresTarget& out, int threads) {
  if (logits.dtype == DType::float64) scores_as<LongCandidate<double>>(logits, options, scored, out, threads);
  else if (logits.width < kShortIds) scores_as<ShortCandidate>(logits, options, scored, out, threads);
  else scores_as<LongCandidate<float>>(logits, options, scored, out, threads);
}

}  // namespace lmhead
