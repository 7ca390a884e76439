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

  ScoreResults(const LossBlocks<T>& blocks, const ScoresTarget& out) : blocks_(blocks), out_(out) {}

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

  // factors: [n_blocks] of scratch; n_better: ids before the target; best: the top_n best, used where there are any.
  void put(int64_t place, const BlockPartials<T>& partials, T* factors, int64_t n_better, TopList<Candidate>& best) const {
    RowLoss row;
    blocks_.merge(partials, {}, factors, row);
    const auto log_probability = [&](T logit) { return static_cast<T>(blocks_.log_probability(double(logit), row)); };
    static_cast<T*>(out_.logsumexp)[place] = static_cast<T>(row.log_sum_exp);
    static_cast<T*>(out_.entropy)[place] = row.defined() ? static_cast<T>(row.entropy) : std::numeric_limits<T>::quiet_NaN();
    out_.argmax[place] = row.argmax;
    if (has_targets()) {
      *target_logit(place) = log_probability(*target_logit(place));
      out_.rank[place] = 1 + n_better;
    }
    for (int64_t i = 0; i < out_.n_chosen; ++i) chosen_logits(place)[i] = log_probability(chosen_logits(place)[i]);
    if (out_.top_n == 0) return;
    best.sort();
    for (int64_t i = 0; i < out_.top_n; ++i) {
      static_cast<T*>(out_.top_logprobs)[place * out_.top_n + i] = log_probability(best.begin()[i].value);
      out_.top_ids[place * out_.top_n + i] = best.begin()[i].id();
    }
  }

 private:
  static void fill(void* out, int64_t n, T value) {
    if (out) std::fill_n(static_cast<T*>(out), n, value);
  }

  const LossBlocks<T>& blocks_;
  const ScoresTarget& out_;
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

  // Adjusted logits of ids [first_id, first_id + n), whole blocks but for the last. target: -1 for none, and then its logit is not looked at.
  void add(const KernelTable& table, const LossBlocks<T>& blocks, int64_t top_n, const T* z, int64_t n, int64_t first_id, int64_t target,
           const T* target_logit, const BlockPartials<T>& partials) {
    blocks.add(z, n, first_id, nullptr, partials);
    if (target >= 0)
      n_better += row_kernels<T>(table).count_better(z, n, *target_logit, std::min(n, std::max<int64_t>(0, target - first_id)));
    if (top_n > 0) best.add(table, z, n, first_id);
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
      const bool targeted = results_.has_targets();
      parts(worker, row).add(table_, blocks_, results_.top_n(), tile.row(r), tile.n_ids, tile.first_id, targeted ? ids_[static_cast<size_t>(row)] : -1,
                             targeted ? results_.target_logit(places_[static_cast<size_t>(row)]) : nullptr, partials_.row(row - first_row_));
    }
  }
  void finish(int64_t first_row, int64_t n_rows) {
    const double work = double(n_rows) * double(blocks_.n_blocks() + results_.top_n() + results_.n_chosen());
    run_tasks(work >= 4096 ? threads_ : 1, n_rows, [&](int worker, int64_t r) {
      ScoreParts<Candidate>& all = parts(0, first_row + r);
      for (int other = 1; other < threads_; ++other) {
        all.n_better += parts(other, first_row + r).n_better;
        if (results_.top_n() > 0) all.best.take(parts(other, first_row + r).best);
      }
      T* factors = factors_[static_cast<size_t>(worker)].reserve(blocks_.n_blocks());
      results_.put(places_[static_cast<size_t>(first_row + r)], partials_.row(r), factors, all.n_better, all.best);
    });
  }

 private:
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
