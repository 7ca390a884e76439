// One token for each row: what the tiles of a row leave for its draw, and the draw. Rows of one batch may want different things:
//   list  greedy rows and top_k: the k best (TopList), then the exact scores of those that the filters keep
//   race  no filter: ids that can still win are scored as they come (consumers/race.hpp)
// It knows rows and their parameters; it refuses to know where logits come from.
#pragma once

#include <cstring>
#include <vector>

#include "consumers/cross_entropy.hpp"
#include "consumers/race.hpp"
#include "consumers/top_k.hpp"
#include "ops/sample.hpp"

namespace lmhead {

// Of some ids' maximum; -inf alone is no fault yet.
template <class T>
Fault fault_of(T max) {
  return max != max ? Fault::nan : max > T(0) && max - max != T(0) ? Fault::infinite : Fault::none;
}

// The winner among the best of a row, best first; the list begins with what is at fault.
template <class Candidate, class T = typename Candidate::T>
Fault draw_from_list(const RowKernels<T>& kernels, const SampleRow& wanted, const Candidate* list, int64_t n, Winner<T>& best) {
  const T max = n > 0 ? list[0].value : -std::numeric_limits<T>::infinity();
  const Fault fault = wanted.greedy() && max > T(0) ? Fault::none : fault_of(max);
  if (fault != Fault::none) return fault;
  if (wanted.greedy()) {
    if (max != -std::numeric_limits<T>::infinity()) best = {0, list[0].id(), max};
    return Fault::none;
  }
  const Race<T> race(kernels, {wanted.seed, wanted.position}, wanted.filters.temperature);
  for (int64_t i = 0; i < n; ++i) race.enter(list[i].value, list[i].id(), best);
  return Fault::none;
}

template <class Candidate>
class Sampling {
 public:
  using T = typename Candidate::T;
  using List = TopList<Candidate>;

  Sampling(const KernelTable& table, const SampleOptions& options, const Allowed& allowed, int64_t n_ids, const SampleTarget& out, int threads)
      : table_(table), kernels_(row_kernels<T>(table)), options_(options), allowed_(allowed), n_ids_(n_ids), out_(out), threads_(threads),
        raw_blocks_(table, raw_spec_, n_ids), raw_logits_(options.edits.size()), faults_(options.rows.size(), Fault::none),
        scratch_(static_cast<size_t>(threads)), states_(static_cast<size_t>(threads)) {}
  Sampling(const Sampling&) = delete;

  int64_t bytes_per_row() const {
    int64_t most = 0;
    for (size_t row = 0; row < options_.rows.size(); ++row) {
      const int64_t k = listed(int64_t(row));
      most = std::max(most, k > 0 ? List::most_bytes(k) : 0);
    }
    if (wants_raw_list()) most += List::most_bytes(options_.top_n);
    return threads_ * (most + int64_t(sizeof(State))) + 2 * BlockPartials<T>::bytes(raw_blocks_.n_blocks());
  }

  void begin(int64_t first_row, int64_t n_rows) {
    first_row_ = first_row;
    if (options_.logprobs == Logprobs::raw) raw_partials_.reserve(n_rows, raw_blocks_.n_blocks(), raw_spec_, false);
    if (options_.logprobs == Logprobs::processed) partials_.reserve(n_rows, raw_blocks_.n_blocks(), raw_spec_, false);
    for (auto& of_worker : states_) {
      of_worker.resize(static_cast<size_t>(n_rows));
      for (int64_t r = 0; r < n_rows; ++r) {
        State& state = of_worker[static_cast<size_t>(r)];
        state.best = {};
        state.fault = Fault::none;
        state.list.start(std::max<int64_t>(1, listed(first_row + r)));
        state.raw_list.start(std::max<int64_t>(1, options_.top_n));
      }
    }
  }
  Place<T> place(int64_t, int64_t) const { return {}; }

  void tile(int worker, const Tile<T>& tile) {
    for (int64_t r = 0; r < tile.n_rows; ++r) stretch(worker, tile.first_row + r, tile.row(r), tile.n_ids, tile.first_id);
  }

  // Logits of ids [first_id, first_id + n) of a row, whole blocks but for the last; a worker sees those of a row in ascending order.
  void stretch(int worker, int64_t row, const T* z, int64_t n, int64_t first_id) {
    State& mine = state(worker, row);
    Scratch& scratch = scratch_[static_cast<size_t>(worker)];
    const SampleRow& wanted = options_.rows[static_cast<size_t>(row)];
    const uint32_t* allowed = allowed_.all() ? nullptr : allowed_.words(row);
    if (wants_raw_list()) mine.raw_list.add(table_, z, n, first_id, allowed);
    const RowEdits edits = options_.edits_of(row).within(first_id, first_id + n);
    const bool races = plan(row) == Plan::race;
    // The sums at temperature 1 are a part of that race.
    const bool shared = races && options_.logprobs == Logprobs::raw && edits.none() && wanted.filters.temperature == 1;
    if (options_.logprobs == Logprobs::raw && !shared) raw_blocks_.add(z, n, first_id, nullptr, raw_partials_.row(row - first_row_));
    const T* y = edits.none() ? z : edited(z, n, first_id, edits, scratch);
    if (listed(row) > 0) mine.list.add(table_, y, n, first_id, allowed);
    if (!races) return;
    const int64_t n_blocks = ceil_div(n, kBlockIds);
    BlockSums<T> sums{scratch.sums.reserve(2 * n_blocks), scratch.sums.get() + n_blocks};
    if (shared) sums = sums_of(raw_partials_, row, first_id);
    else if (options_.logprobs == Logprobs::processed) sums = sums_of(partials_, row, first_id);
    T* exps = scratch.exps.reserve(n);
    kernels_.block_sums(y, n, inverse_temperature_of<T>(wanted.filters.temperature), exps, sums);
    const Race<T> race(kernels_, noise(wanted), wanted.filters.temperature);
    for (int64_t b = 0; b < n_blocks; ++b) {
      const T max = sums.maxima[b];
      const int64_t at = b * kBlockIds;
      if (max - max == T(0)) race.block(y + at, exps + at, std::min(kBlockIds, n - at), first_id + at, max, mine.best);
      else mine.fault = worse(mine.fault, fault_of(max));
    }
  }

  void finish(int64_t first_row, int64_t n_rows) {
    run_tasks(n_rows > 1 && double(n_rows) * double(n_ids_) >= 1 << 16 ? threads_ : 1, n_rows, [&](int worker, int64_t r) {
      finish_row(scratch_[static_cast<size_t>(worker)], first_row + r);
    });
  }

  RowFault first_fault() const {
    for (size_t row = 0; row < faults_.size(); ++row)
      if (faults_[row] != Fault::none) return {int64_t(row), faults_[row]};
    return {};
  }

 private:
  enum class Plan { list, race };

  struct State {
    Winner<T> best;
    Fault fault = Fault::none;
    List list, raw_list;
  };
  struct Scratch {
    Buffer<T> edited, exps, sums;
  };

  // What a draw left of a row: the token, how it stands, and the best of what was drawn from.
  struct Drawn {
    int64_t id = -1;
    T logit = 0;
  };

  Plan plan(int64_t row) const {
    const SampleRow& wanted = options_.rows[static_cast<size_t>(row)];
    return wanted.greedy() || wanted.filters.top_k > 0 ? Plan::list : Plan::race;
  }
  // How many of a row's best are wanted.
  int64_t listed(int64_t row) const {
    const SampleRow& wanted = options_.rows[static_cast<size_t>(row)];
    if (wanted.greedy()) return 1;
    if (wanted.filters.top_k > 0) return std::min(wanted.filters.top_k, std::max<int64_t>(1, n_ids_));
    return options_.logprobs == Logprobs::processed ? options_.top_n : 0;
  }
  bool wants_raw_list() const { return options_.logprobs == Logprobs::raw && options_.top_n > 0; }

  static Noise noise(const SampleRow& wanted) { return {wanted.seed, wanted.position}; }
  State& state(int worker, int64_t row) { return states_[static_cast<size_t>(worker)][static_cast<size_t>(row - first_row_)]; }

  static Fault worse(Fault a, Fault b) { return a == Fault::nan || b == Fault::none ? a : b; }

  BlockSums<T> sums_of(const PartialRows<T>& partials, int64_t row, int64_t first_id) const {
    const BlockPartials<T> p = partials.row(row - first_row_);
    return {p.maxima + first_id / kBlockIds, p.rests + first_id / kBlockIds};
  }

  const T* edited(const T* z, int64_t n, int64_t first_id, const RowEdits& edits, Scratch& scratch) {
    T* y = scratch.edited.reserve(n);
    std::memcpy(y, z, static_cast<size_t>(n) * sizeof(T));
    for (const Edit* edit = edits.first; edit != edits.last; ++edit) {
      raw_logits_[static_cast<size_t>(edit - options_.edits.data())] = z[edit->id - first_id];
      y[edit->id - first_id] = edit->apply(z[edit->id - first_id]);
    }
    return y;
  }

  void finish_row(Scratch& scratch, int64_t row) {
    State& all = state(0, row);
    for (int worker = 1; worker < threads_; ++worker) {
      const State& other = state(worker, row);
      all.best.meet(other.best);
      all.fault = worse(all.fault, other.fault);
      if (listed(row) > 0) all.list.take(other.list);
      if (wants_raw_list()) all.raw_list.take(other.raw_list);
    }
    if (listed(row) > 0) all.list.sort();
    draw(all, row);
    faults_[static_cast<size_t>(row)] = all.fault;
    if (all.fault != Fault::none) return;
    out_.token[row] = all.best.id;
    if (options_.logprobs == Logprobs::raw) put_raw(all, row);
    if (options_.logprobs == Logprobs::processed) put_processed(scratch, all, row);
  }

  // The winner of a row whose lists have been merged.
  void draw(State& all, int64_t row) const {
    const SampleRow& wanted = options_.rows[static_cast<size_t>(row)];
    if (plan(row) == Plan::list) all.fault = draw_from_list(kernels_, wanted, all.list.begin(), all.list.size(), all.best);
    if (all.fault == Fault::none && all.best.id < 0) all.fault = Fault::nothing;
  }

  void put_raw(State& all, int64_t row) {
    RowLoss loss;
    raw_blocks_.merge(raw_partials_.row(row - first_row_), {}, nullptr, loss);
    const auto logprob = [&](T z) {
      return static_cast<T>(loss.defined() ? -raw_blocks_.cost(double(z), loss) : std::numeric_limits<double>::quiet_NaN());
    };
    const Edit* edit = options_.edits_of(row).find(all.best.id);
    put_logprob(row, logprob(edit ? raw_logits_[static_cast<size_t>(edit - options_.edits.data())] : all.best.logit));
    if (!wants_raw_list()) return;
    all.raw_list.sort();
    const int64_t n = all.raw_list.size();
    for (int64_t i = 0; i < n; ++i) put_top(row, i, all.raw_list.begin()[i].id(), logprob(all.raw_list.begin()[i].value));
    fill_top(row, n);
  }

  void put_processed(Scratch& scratch, State& all, int64_t row) const {
    const SampleRow& wanted = options_.rows[static_cast<size_t>(row)];
    const double temperature = wanted.filters.temperature;
    const Candidate* list = all.list.begin();
    const int64_t k = all.list.size(), n_listed = std::min(k, options_.top_n);
    if (wanted.greedy()) {
      put_logprob(row, T(0));
      if (options_.top_n > 0) put_top(row, 0, all.best.id, T(0));
      return fill_top(row, std::min<int64_t>(1, options_.top_n));
    }
    LogSum<T> sum;
    if (plan(row) == Plan::race) {
      const BlockSums<T> sums = sums_of(partials_, row, 0);
      sum = kernels_.merge_sums(sums, raw_blocks_.n_blocks(), inverse_temperature_of<T>(temperature), nullptr);
    } else {
      T* logits = scratch.exps.reserve(k);
      for (int64_t i = 0; i < k; ++i) logits[i] = list[i].value;
      const int64_t n_blocks = ceil_div(k, kBlockIds);
      const BlockSums<T> sums{scratch.sums.reserve(2 * n_blocks), scratch.sums.get() + n_blocks};
      kernels_.block_sums(logits, k, inverse_temperature_of<T>(temperature), nullptr, sums);
      sum = kernels_.merge_sums(sums, n_blocks, inverse_temperature_of<T>(temperature), nullptr);
    }
    const auto logprob = [&](T y) {
      const double half = double(sum.max) / 2 - double(y) / 2;
      return static_cast<T>(-((half == 0 ? 0 : half / temperature * 2) + log1p_of(double(sum.rest))));
    };
    put_logprob(row, logprob(all.best.logit));
    int64_t i = 0;
    for (; i < n_listed && list[i].value != -std::numeric_limits<T>::infinity(); ++i) put_top(row, i, list[i].id(), logprob(list[i].value));
    fill_top(row, i);
  }

  void put_logprob(int64_t row, T x) const { static_cast<T*>(out_.logprob)[row] = x; }
  void put_top(int64_t row, int64_t place, int64_t id, T logprob) const {
    out_.top_ids[row * options_.top_n + place] = id;
    static_cast<T*>(out_.top_logprobs)[row * options_.top_n + place] = logprob;
  }
  // Places from `first` on that nobody has.
  void fill_top(int64_t row, int64_t first) const {
    for (int64_t i = first; i < options_.top_n; ++i) put_top(row, i, -1, -std::numeric_limits<T>::infinity());
  }

  const KernelTable& table_;
  const RowKernels<T>& kernels_;
  const SampleOptions& options_;
  const Allowed& allowed_;
  const int64_t n_ids_;
  const SampleTarget& out_;
  const int threads_;
  const LossSpec<T> raw_spec_;
  const LossBlocks<T> raw_blocks_;
  std::vector<T> raw_logits_;  // of each edit's id, before it
  std::vector<Fault> faults_;
  std::vector<Scratch> scratch_;             // of each worker
  std::vector<std::vector<State>> states_;   // of each worker and row of the block
  int64_t first_row_ = 0;
  PartialRows<T> raw_partials_, partials_;   // of logits at temperature 1; of edited ones at the row's
};

}  // namespace lmhead
