// One token for each row: what the tiles of a row leave for its draw. Rows of one batch may want different things:
//   race  no filter: ids that can still win are scored as they come (consumers/race.hpp)
//   list  greedy rows and top_k: the best few, which are all that RowDraw needs
//   keep  top_p, min_p, typical_p: the best few, and the row itself for those that do not suffice
// It knows rows and their parameters; it refuses to know where logits come from.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "consumers/loss_blocks.hpp"
#include "consumers/row_draw.hpp"

namespace lmhead {

template <class Candidate>
class Sampling {
 public:
  using T = typename Candidate::T;
  using List = TopList<Candidate>;

  Sampling(const KernelTable& table, const SampleOptions& options, const Allowed& allowed, int64_t n_ids, const SampleTarget& out, int threads)
      : table_(table), kernels_(row_kernels<T>(table)), options_(options), allowed_(allowed), n_ids_(n_ids), out_(out), threads_(threads),
        raw_blocks_(table, raw_spec_, n_ids), raw_logits_(options.edits.size()), faults_(options.rows.size(), Fault::none),
        states_(static_cast<size_t>(threads)) {
    for (int worker = 0; worker < threads; ++worker) workers_.push_back(std::make_unique<Worker>(table));
  }
  Sampling(const Sampling&) = delete;

  static bool keeps_row(const SampleRow& wanted, int64_t n_ids) { return plan_of(wanted, n_ids) == Plan::keep; }

  int64_t bytes_per_row() const {
    int64_t most = 0;
    for (size_t row = 0; row < options_.rows.size(); ++row) {
      const auto at = static_cast<int64_t>(row);
      const int64_t k = listed(at);
      const int64_t kept = plan(at) == Plan::keep ? n_ids_ * int64_t(sizeof(T)) + 16 * raw_blocks_.n_blocks() : 0;
      most = std::max(most, kept + threads_ * (k > 0 ? List::most_bytes(k) : 0));
    }
    if (wants_raw_list()) most += threads_ * List::most_bytes(options_.top_n);
    return most + threads_ * int64_t(sizeof(State)) + 2 * BlockPartials<T>::bytes(raw_blocks_.n_blocks());
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
    begin_kept(n_rows);
  }
  Place<T> place(int64_t, int64_t) const { return {}; }

  void tile(int worker, const Tile<T>& tile) {
    for (int64_t r = 0; r < tile.n_rows; ++r) stretch(worker, tile.first_row + r, tile.row(r), tile.n_ids, tile.first_id);
  }

  // Between begin and the row's first stretch: its logits stay where they are until the end.
  void lies_at(int64_t row, const T* logits) {
    if (plan(row) == Plan::keep && options_.edits_of(row).none()) kept_rows_[static_cast<size_t>(row - first_row_)] = logits;
  }

  // Logits of ids [first_id, first_id + n) of a row, whole blocks but for the last; a worker sees those of a row in ascending order.
  void stretch(int worker, int64_t row, const T* z, int64_t n, int64_t first_id) {
    State& mine = state(worker, row);
    Worker& scratch = *workers_[static_cast<size_t>(worker)];
    if (wants_raw_list()) mine.raw_list.add(table_, z, n, first_id, allowed_.all() ? nullptr : allowed_.words(row));
    const RowEdits edits = options_.edits_of(row).within(first_id, first_id + n);
    // The sums at temperature 1 are a part of that race.
    const bool shared = options_.logprobs == Logprobs::raw && plan(row) == Plan::race && edits.none() && wanted(row).filters.temperature == 1;
    if (options_.logprobs == Logprobs::raw && !shared) raw_blocks_.add(z, n, first_id, nullptr, raw_partials_.row(row - first_row_));
    const T* y = edits.none() ? z : edited(z, n, first_id, edits, scratch);
    if (listed(row) > 0) mine.list.add(table_, y, n, first_id);
    if (plan(row) == Plan::race) run_race(scratch, mine, row, y, n, first_id, shared);
    if (plan(row) == Plan::keep) keep(row, y, n, first_id);
  }

  void finish(int64_t first_row, int64_t n_rows) {
    run_tasks(n_rows > 1 && double(n_rows) * double(n_ids_) >= 1 << 16 ? threads_ : 1, n_rows, [&](int worker, int64_t r) {
      finish_row(*workers_[static_cast<size_t>(worker)], first_row + r);
    });
  }

  RowFault first_fault() const {
    for (size_t row = 0; row < faults_.size(); ++row)
      if (faults_[row] != Fault::none) return {int64_t(row), faults_[row]};
    return {};
  }

 private:
  enum class Plan { race, list, keep };

  struct State {
    Runner<T> best;
    Fault fault = Fault::none;
    List list, raw_list;
  };
  struct Worker {
    explicit Worker(const KernelTable& table) : draw(table) {}
    Buffer<T> edited, exps, sums;
    RowDraw<T> draw;
  };

  static Plan plan_of(const SampleRow& wanted, int64_t n_ids) {
    const Filters& filters = wanted.filters;
    if (filters.keeps_all(n_ids)) return Plan::race;
    return filters.greedy() || (filters.has_top_k(n_ids) && filters.top_k <= kListedTopK) ? Plan::list : Plan::keep;
  }
  const SampleRow& wanted(int64_t row) const { return options_.rows[static_cast<size_t>(row)]; }
  Plan plan(int64_t row) const { return plan_of(wanted(row), n_ids_); }
  // How many of a row's best are wanted.
  int64_t listed(int64_t row) const {
    if (plan(row) != Plan::race) return n_best(wanted(row).filters, n_ids_);
    return options_.logprobs == Logprobs::processed ? options_.top_n : 0;
  }
  Race<T> race_of(int64_t row) const { return {kernels_, {wanted(row).seed, wanted(row).position}, wanted(row).filters.temperature}; }
  bool wants_raw_list() const { return options_.logprobs == Logprobs::raw && options_.top_n > 0; }
  bool weighs_row(int64_t row) const { return plan(row) == Plan::keep && wants_row_mass(wanted(row).filters, n_ids_); }
  State& state(int worker, int64_t row) { return states_[static_cast<size_t>(worker)][static_cast<size_t>(row - first_row_)]; }

  void begin_kept(int64_t n_rows) {
    int64_t n_kept = 0;
    for (int64_t r = 0; r < n_rows; ++r) n_kept += plan(first_row_ + r) == Plan::keep;
    T* next = kept_.reserve(n_kept * n_ids_);
    kept_rows_.assign(static_cast<size_t>(n_rows), nullptr);
    row_masses_.resize(static_cast<size_t>(n_kept > 0 ? n_rows : 0));
    for (int64_t r = 0; r < n_rows; ++r) {
      if (plan(first_row_ + r) != Plan::keep) continue;
      kept_rows_[static_cast<size_t>(r)] = next;
      next += n_ids_;
      if (weighs_row(first_row_ + r)) row_masses_[static_cast<size_t>(r)].start(n_ids_, wanted(first_row_ + r).filters.filter_temperature());
    }
  }

  BlockSums<T> sums_of(const PartialRows<T>& partials, int64_t row, int64_t first_id) const {
    const BlockPartials<T> p = partials.row(row - first_row_);
    return {p.maxima + first_id / kBlockIds, p.rests + first_id / kBlockIds};
  }

  const T* edited(const T* z, int64_t n, int64_t first_id, const RowEdits& edits, Worker& scratch) {
    T* y = scratch.edited.reserve(n);
    std::memcpy(y, z, static_cast<size_t>(n) * sizeof(T));
    for (const Edit* edit = edits.first; edit != edits.last; ++edit)
      raw_logits_[static_cast<size_t>(edit - options_.edits.data())] = z[edit->id - first_id];
    edits.apply(y, first_id);
    return y;
  }

  void run_race(Worker& scratch, State& mine, int64_t row, const T* y, int64_t n, int64_t first_id, bool shared) {
    const int64_t n_blocks = ceil_div(n, kBlockIds);
    BlockSums<T> sums{scratch.sums.reserve(2 * n_blocks), scratch.sums.get() + n_blocks};
    if (shared) sums = sums_of(raw_partials_, row, first_id);
    else if (options_.logprobs == Logprobs::processed) sums = sums_of(partials_, row, first_id);
    T* exps = scratch.exps.reserve(n);
    const double temperature = wanted(row).filters.temperature;
    kernels_.block_sums(y, n, inverse_temperature_of<T>(temperature), exps, sums);
    const Race<T> race = race_of(row);
    for (int64_t b = 0; b < n_blocks; ++b) {
      const T max = sums.maxima[b];
      const int64_t at = b * kBlockIds;
      if (max - max == T(0)) race.block(y + at, exps + at, std::min(kBlockIds, n - at), first_id + at, max, mine.best);
      else mine.fault = worse(mine.fault, fault_of(max));
    }
  }

  void keep(int64_t row, const T* y, int64_t n, int64_t first_id) {
    const auto r = static_cast<size_t>(row - first_row_);
    const T* to = kept_rows_[r] + first_id;
    if (to != y) std::memcpy(const_cast<T*>(to), y, static_cast<size_t>(n) * sizeof(T));
    if (weighs_row(row)) row_masses_[r].add(table_, y, n, first_id);
  }

  static Fault worse(Fault a, Fault b) { return a == Fault::nan || b == Fault::none ? a : b; }

  void finish_row(Worker& scratch, int64_t row) {
    State& all = state(0, row);
    const Race<T> race = race_of(row);
    for (int worker = 1; worker < threads_; ++worker) {
      const State& other = state(worker, row);
      race.meet(other.best, all.best);
      all.fault = worse(all.fault, other.fault);
      if (listed(row) > 0) all.list.take(other.list);
      if (wants_raw_list()) all.raw_list.take(other.raw_list);
    }
    if (listed(row) > 0) all.list.sort();
    if (plan(row) != Plan::race) draw(scratch.draw, all, row);
    else if (all.fault == Fault::none && all.best.id < 0) all.fault = Fault::nothing;
    faults_[static_cast<size_t>(row)] = all.fault;
    if (all.fault != Fault::none) return;
    out_.token[row] = all.best.id;
    if (options_.logprobs == Logprobs::raw) put_raw(all, row);
    if (options_.logprobs == Logprobs::processed) put_processed(scratch.draw, all, row);
  }

  void draw(RowDraw<T>& draw, State& all, int64_t row) {
    const auto r = static_cast<size_t>(row - first_row_);
    LogSum<double> sum;
    if (weighs_row(row)) sum = row_masses_[r].sum(table_);
    const LogSum<double>* row_sum = weighs_row(row) ? &sum : nullptr;
    draw.from(all.list.begin(), all.list.size(), kept_rows_[r], n_ids_, row_sum, wanted(row));
    all.fault = draw.fault();
    all.best = draw.winner();
  }

  void put_raw(State& all, int64_t row) {
    RowLoss loss;
    raw_blocks_.merge(raw_partials_.row(row - first_row_), {}, nullptr, loss);
    const auto logprob = [&](T z) { return static_cast<T>(raw_blocks_.log_probability(double(z), loss)); };
    const Edit* edit = options_.edits_of(row).find(all.best.id);
    put_logprob(row, logprob(edit ? raw_logits_[static_cast<size_t>(edit - options_.edits.data())] : all.best.logit));
    if (!wants_raw_list()) return;
    all.raw_list.sort();
    const int64_t n = all.raw_list.size();
    for (int64_t i = 0; i < n; ++i) put_top(row, i, all.raw_list.begin()[i].id(), logprob(all.raw_list.begin()[i].value));
    fill_top(row, n);
  }

  void put_processed(RowDraw<T>& draw, State& all, int64_t row) const {
    if (plan(row) != Plan::race) {
      put_logprob(row, draw.logprob(all.best.logit));
      if (options_.top_n == 0) return;
      return fill_top(row, draw.best(options_.top_n, [&](int64_t i, int64_t id, T y) { put_top(row, i, id, draw.logprob(y)); }));
    }
    const double temperature = wanted(row).filters.temperature;
    const LogSum<T> sum = kernels_.merge_sums(sums_of(partials_, row, 0), raw_blocks_.n_blocks(), inverse_temperature_of<T>(temperature), nullptr);
    const double log_total = log1p_of(double(sum.rest));
    const auto logprob = [&](T y) { return static_cast<T>(log_probability_of(double(sum.max), double(y), temperature, log_total)); };
    put_logprob(row, logprob(all.best.logit));
    int64_t i = 0;
    for (; i < options_.top_n && all.list.begin()[i].value != -std::numeric_limits<T>::infinity(); ++i)
      put_top(row, i, all.list.begin()[i].id(), logprob(all.list.begin()[i].value));
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
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::vector<State>> states_;  // of each worker and row of the block
  int64_t first_row_ = 0;
  PartialRows<T> raw_partials_, partials_;  // of logits at temperature 1; of edited ones at the row's
  Buffer<T> kept_;                          // edited logits of rows that are kept
  std::vector<const T*> kept_rows_;         // of each row of the block: there, or where the caller has it; null
  std::vector<RowMass> row_masses_;
};

}  // namespace lmhead
