// Scores of rows: log p of a target, its rank, log p of chosen ids and of the best ones, the log-sum-exp, the entropy, the argmax.
// ScoreResults says how a row's answers follow from its blocks, a count and a list, for the fused and for the row family; Scores is the
// consumer that collects these from tiles.
// It knows ids and probabilities; it refuses to know where logits come from and which rows there are.
#pragma once

#include <algorithm>
#include <vector>

#include "consumers/loss_blocks.hpp"
#include "consumers/top_k.hpp"

namespace lmhead {

// An element for each of n_places, or top_n and n_chosen of them; null where nobody asked. Floating ones are of T.
struct ScoresTarget {
  int64_t n_places = 0, top_n = 0, n_chosen = 0;
  void *logprob = nullptr, *logsumexp = nullptr, *entropy = nullptr, *top_logprobs = nullptr, *chosen_logprobs = nullptr;
  int64_t *rank = nullptr, *argmax = nullptr, *top_ids = nullptr;
};

template <class Candidate>
class ScoreResults {
 public:
  using T = typename Candidate::T;

  // `allowed` is of the rows that are scored, in their order.
  ScoreResults(const LossBlocks<T>& blocks, const ScoresTarget& out, const Allowed& allowed) : blocks_(blocks), out_(out), allowed_(allowed) {}

  const Allowed& allowed() const { return allowed_; }
  int64_t top_n() const { return out_.top_n; }
  int64_t n_chosen() const { return out_.n_chosen; }
  bool has_targets() const { return out_.logprob; }

  // Where a row's logits of its target and its chosen ids wait for `put`: in the places of their results.
  T* target_logit(int64_t place) const { return static_cast<T*>(out_.logprob) + place; }
  T* chosen_logits(int64_t place) const { return static_cast<T*>(out_.chosen_logprobs) + place * out_.n_chosen; }

  // What places have that no row is for.
  void clear() const {
    const T nan = std::numeric_limits<T>::quiet_NaN();
    fill(out_.logprob, out_.n_places, T(0));
    fill(out_.logsumexp, out_.n_places, nan);
    fill(out_.entropy, out_.n_places, nan);
    fill(out_.top_logprobs, out_.n_places * out_.top_n, nan);
    fill(out_.chosen_logprobs, out_.n_places * out_.n_chosen, nan);
    if (out_.rank) std::fill_n(out_.rank, out_.n_places, -1);
    if (out_.argmax) std::fill_n(out_.argmax, out_.n_places, -1);
    if (out_.top_ids) std::fill_n(out_.top_ids, out_.n_places * out_.top_n, -1);
  }

  // Of row i. target: as in ScoreParts::add; factors: [n_blocks] of scratch; best: used where there is a top_n.
  void put(int64_t i, int64_t place, int64_t target, const BlockPartials<T>& partials, T* factors, int64_t n_better, TopList<Candidate>& best) const {
    RowLoss row;
    blocks_.merge(partials, {}, factors, row);
    const auto log_probability = [&](T logit) { return static_cast<T>(blocks_.log_probability(double(logit), row)); };
    static_cast<T*>(out_.logsumexp)[place] = static_cast<T>(row.log_sum_exp);
    static_cast<T*>(out_.entropy)[place] = row.defined() ? static_cast<T>(row.entropy) : std::numeric_limits<T>::quiet_NaN();
    out_.argmax[place] = row.max == -std::numeric_limits<double>::infinity() ? first_allowed(i, row.argmax) : row.argmax;
    if (has_targets()) {
      T& logprob = *target_logit(place);
      out_.rank[place] = rank(i, target, logprob, n_better);
      logprob = log_probability(logprob);
    }
    for (int64_t c = 0; c < out_.n_chosen; ++c) chosen_logits(place)[c] = log_probability(chosen_logits(place)[c]);
    if (out_.top_n == 0) return;
    best.sort();
    T* logprobs = static_cast<T*>(out_.top_logprobs) + place * out_.top_n;
    int64_t* ids = out_.top_ids + place * out_.top_n;
    const int64_t found = std::min(out_.top_n, best.size());
    for (int64_t k = 0; k < found; ++k) {
      logprobs[k] = log_probability(best.begin()[k].value);
      ids[k] = best.begin()[k].id();
    }
    std::fill(logprobs + found, logprobs + out_.top_n, -std::numeric_limits<T>::infinity());
    std::fill(ids + found, ids + out_.top_n, int64_t{-1});
  }

 private:
  static void fill(void* out, int64_t n, T value) {
    if (out) std::fill_n(static_cast<T*>(out), n, value);
  }

  // Disallowed ids hold -inf, where the count takes those before the target for better ones.
  int64_t rank(int64_t i, int64_t target, T logit, int64_t n_better) const {
    if (allowed_.all()) return 1 + n_better;
    if (!allowed_.has(i, target)) return -1;
    if (logit != -std::numeric_limits<T>::infinity()) return 1 + n_better;
    int64_t n_before = 0;
    each_id(allowed_.words(i), 0, target, [&](int64_t) { ++n_before; });
    return 1 + n_better - (target - n_before);
  }
  // Of a row of -inf: the first id that is one, or -1.
  int64_t first_allowed(int64_t i, int64_t first) const {
    if (allowed_.all()) return first;
    for (int64_t id = 0; id < allowed_.n_ids(); ++id)
      if (allowed_.has(i, id)) return id;
    return -1;
  }

  const LossBlocks<T>& blocks_;
  const ScoresTarget& out_;
  const Allowed& allowed_;
};

// What one worker keeps of one row beside the blocks.
template <class Candidate>
struct ScoreParts {
  using T = typename Candidate::T;
  int64_t n_better = 0;
  TopList<Candidate> best;

  void start(int64_t top_n) {
    n_better = 0;
    best.start(top_n);
  }

  // Of row i: adjusted logits of ids [first_id, first_id + n), whole blocks but for the last. target: -1 where there are none.
  void add(const KernelTable& table, const LossBlocks<T>& blocks, const ScoreResults<Candidate>& results, int64_t i, int64_t place, int64_t target,
           const T* z, int64_t n, int64_t first_id, const BlockPartials<T>& partials) {
    blocks.add(z, n, first_id, nullptr, partials);
    if (target >= 0)
      n_better += row_kernels<T>(table).count_better(z, n, *results.target_logit(place), std::min(n, std::max<int64_t>(0, target - first_id)));
    const Allowed& allowed = results.allowed();
    if (results.top_n() > 0) best.add(table, z, n, first_id, allowed.all() ? nullptr : allowed.words(i));
  }
};

// The consumer. Rows of the fold have places[row] in the results and ids[row] for a target, whose logit and whose row's chosen logits are
// there before.
template <class Candidate>
class Scores {
 public:
  using T = typename Candidate::T;

  Scores(const KernelTable& table, const LossBlocks<T>& blocks, const ScoreResults<Candidate>& results, const std::vector<int64_t>& places,
         const std::vector<int64_t>& ids, int threads)
      : table_(table), blocks_(blocks), results_(results), places_(places), ids_(ids), threads_(threads), parts_(static_cast<size_t>(threads)),
        factors_(static_cast<size_t>(threads)) {}

  int64_t bytes_per_row() const {
    const int64_t list = results_.top_n() > 0 ? TopList<Candidate>::most_bytes(results_.top_n()) : 0;
    return BlockPartials<T>::bytes(blocks_.n_blocks()) + threads_ * (static_cast<int64_t>(sizeof(ScoreParts<Candidate>)) + list);
  }
  void begin(int64_t first_row, int64_t n_rows) {
    first_row_ = first_row;
    partials_.reserve(n_rows, blocks_.n_blocks(), blocks_.spec(), false);
    for (auto& of_worker : parts_) {
      of_worker.resize(static_cast<size_t>(n_rows));
      for (ScoreParts<Candidate>& parts : of_worker) parts.start(results_.top_n());
    }
  }
  Place<T> place(int64_t, int64_t) const { return {}; }
  void tile(int worker, const Tile<T>& tile) {
    for (int64_t r = 0; r < tile.n_rows; ++r) {
      const int64_t row = tile.first_row + r;
      parts(worker, row).add(table_, blocks_, results_, row, place_of(row), target_of(row), tile.row(r), tile.n_ids, tile.first_id,
                             partials_.row(row - first_row_));
    }
  }
  void finish(int64_t first_row, int64_t n_rows) {
    const double work = double(n_rows) * double(blocks_.n_blocks() + results_.top_n() + results_.n_chosen());
    run_tasks(work >= 4096 ? threads_ : 1, n_rows, [&](int worker, int64_t r) {
      const int64_t row = first_row + r;
      ScoreParts<Candidate>& all = parts(0, row);
      for (int other = 1; other < threads_; ++other) {
        all.n_better += parts(other, row).n_better;
        if (results_.top_n() > 0) all.best.take(parts(other, row).best);
      }
      T* factors = factors_[static_cast<size_t>(worker)].reserve(blocks_.n_blocks());
      results_.put(row, place_of(row), target_of(row), partials_.row(r), factors, all.n_better, all.best);
    });
  }

 private:
  int64_t place_of(int64_t row) const { return places_[static_cast<size_t>(row)]; }
  int64_t target_of(int64_t row) const { return ids_.empty() ? -1 : ids_[static_cast<size_t>(row)]; }
  ScoreParts<Candidate>& parts(int worker, int64_t row) { return parts_[static_cast<size_t>(worker)][static_cast<size_t>(row - first_row_)]; }

  const KernelTable& table_;
  const LossBlocks<T>& blocks_;
  const ScoreResults<Candidate>& results_;
  const std::vector<int64_t>& places_;
  const std::vector<int64_t>& ids_;
  int threads_;
  int64_t first_row_ = 0;
  PartialRows<T> partials_;
  std::vector<std::vector<ScoreParts<Candidate>>> parts_;
  std::vector<Buffer<T>> factors_;
};

}  // namespace lmhead
