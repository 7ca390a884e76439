// The draw of one row whose best logits, or all of them, are there: what the filters keep (consumers/kept.hpp), the winner among that, and
// log-probabilities relative to it.
// It knows one row at a time; it refuses to know tiles, edits and where results go. One object a worker.
#pragma once

#include "consumers/kept.hpp"
#include "consumers/race.hpp"
#include "core/draw.hpp"
#include "core/log1p.hpp"

namespace lmhead {

// Of some ids' maximum; -inf alone is no fault yet.
template <class T>
Fault fault_of(T max) {
  return max != max ? Fault::nan : max > T(0) && max - max != T(0) ? Fault::infinite : Fault::none;
}

template <class T>
class RowDraw {
 public:
  explicit RowDraw(const KernelTable& table) : table_(table), kernels_(row_kernels<T>(table)), kept_(table) {}

  // From the best of a row and, where it is there, the row itself, as Kept::filter has them; false where it is needed and is not.
  template <class Candidate>
  bool from(const Candidate* best, int64_t count, const T* row, int64_t n_ids, const LogSum<double>* row_sum, const SampleRow& wanted) {
    if (!kept_.filter(best, count, row, n_ids, row_sum, wanted.filters)) return false;
    draw(row, n_ids, wanted);
    return true;
  }

  Fault fault() const { return fault_; }
  const Runner<T>& winner() const { return winner_; }

  // Of a kept logit, among what is kept.
  T logprob(T logit) {
    if (wanted_->greedy()) return T(0);
    return static_cast<T>(log_probability_of(double(kept_.max()), double(logit), wanted_->filters.temperature, log1p_of(kept_.rest())));
  }

  // Calls see(place, id, logit) for the n best of what is kept, best first; returns how many there are.
  template <class See>
  int64_t best(int64_t n, const See& see) {
    list_.start(std::max<int64_t>(1, std::min(n, n_ids_)));
    if (kept_.is_list()) {
      entries_.clear();
      for (int64_t i = 0; i < kept_.count(); ++i) entries_.emplace_back(kept_.values()[i], kept_.ids()[i]);
      const auto middle = entries_.begin() + std::min<ptrdiff_t>(n, kept_.count());
      std::partial_sort(entries_.begin(), middle, entries_.end(), [](const auto& a, const auto& b) { return a.better(b); });
      entries_.erase(middle, entries_.end());
    } else {
      each_block([&](const T* y, int64_t count, int64_t first_id) { list_.add(table_, y, count, first_id); });
      list_.sort();
      entries_.assign(list_.begin(), list_.begin() + std::min(n, list_.size()));
    }
    int64_t place = 0;
    for (const auto& entry : entries_)
      if (entry.value != -std::numeric_limits<T>::infinity()) see(place++, entry.id(), entry.value);
    return place;
  }

 private:
  void draw(const T* logits, int64_t n_ids, const SampleRow& wanted) {
    logits_ = logits;
    n_ids_ = n_ids;
    wanted_ = &wanted;
    winner_ = {};
    const T max = kept_.max();
    fault_ = wanted.greedy() && max > T(0) ? Fault::none : fault_of(max);
    if (fault_ != Fault::none) return;
    const Race<T> race(kernels_, {wanted.seed, wanted.position}, wanted.filters.temperature);
    if (wanted.greedy()) {
      if (kept_.count() > 0) winner_ = {kept_.ids()[0], kept_.values()[0], 0};
    } else {
      const T inverse = inverse_temperature_of<T>(wanted.filters.temperature);
      T exps[kBlockIds], greatest, rest;
      if (kept_.is_list()) {
        for (int64_t first = 0; first < kept_.count(); first += kBlockIds) {
          const T* y = kept_.values() + first;
          const int64_t n = std::min(kBlockIds, kept_.count() - first);
          kernels_.block_sums(y, n, inverse, exps, {&greatest, &rest});
          race.list(y, exps, kept_.ids() + first, n, greatest, winner_);
        }
      } else {
        each_block([&](const T* y, int64_t n, int64_t first_id) {
          kernels_.block_sums(y, n, inverse, exps, {&greatest, &rest});
          if (greatest - greatest == T(0)) race.block(y, exps, n, first_id, greatest, winner_);
        });
      }
    }
    if (winner_.id < 0) fault_ = Fault::nothing;
  }

  // The row block by block, with -inf where nothing is kept; not of a list.
  template <class See>
  void each_block(const See& see) {
    constexpr T nothing = -std::numeric_limits<T>::infinity();
    const T* row = logits_;
    const CutOff<T>& cut_off = kept_.cut_off();
    T some[kBlockIds];
    for (int64_t first = 0; first < n_ids_; first += kBlockIds) {
      const int64_t n = std::min(kBlockIds, n_ids_ - first);
      if (cut_off.keeps_all()) {
        see(row + first, n, first);
        continue;
      }
      for (int64_t i = 0; i < n; ++i) some[i] = row[first + i] >= cut_off.value ? row[first + i] : nothing;  // compares vectors
      if (cut_off.last_id < first + n - 1)
        for (int64_t i = std::max<int64_t>(0, cut_off.last_id + 1 - first); i < n; ++i)
          if (some[i] == cut_off.value) some[i] = nothing;
      see(some, n, first);
    }
  }

  const KernelTable& table_;
  const RowKernels<T>& kernels_;
  Kept<T> kept_;
  TopList<LongCandidate<T>> list_;
  std::vector<LongCandidate<T>> entries_;

  const T* logits_ = nullptr;
  int64_t n_ids_ = 0;
  const SampleRow* wanted_ = nullptr;
  Runner<T> winner_;
  Fault fault_ = Fault::none;
};

}  // namespace lmhead
