// Which ids of a row are kept under top_k, top_p, min_p and typical_p, and what they weigh.
// It knows one row of processed logits, or its best; it refuses to know where they come from and how a token is drawn.
//
// Precision: masses are exp((y - max) / temperature) in float64, each a function of y alone. Sums of masses have one order: of a list its
// own, best first; of a row that of RowMass; within ShareOfMass as it says. Ties by ascending id. -inf is never kept.
// No filter sorts a row: the best few come from a TopList, and where they hold too little a threshold is found in two more passes.
#pragma once

#include <vector>

#include "consumers/masses.hpp"
#include "consumers/share_of_mass.hpp"
#include "consumers/top_k.hpp"
#include "core/filters.hpp"

namespace lmhead {

// Best logits that are tried before whole rows: a nucleus is rarely wider. 256 cost a few microseconds more than 50.
constexpr int64_t kCandidates = 256;
// As many are tried next, where the first hold this part of a nucleus.
constexpr int64_t kManyCandidates = 2048;
constexpr double kNearly = 0.5;
// The greatest top_k whose ids are listed; above it a threshold takes their place.
constexpr int64_t kListedTopK = 4096;

// How many of the best logits of a row `Kept::filter_best` wants, no more and no fewer unless the row has fewer; 0: none, for all is kept.
inline int64_t n_best(const Filters& filters, int64_t n_ids) {
  if (filters.keeps_all(n_ids)) return 0;
  const int64_t k = filters.greedy() ? 1 : filters.has_top_k(n_ids) && filters.top_k <= kListedTopK ? filters.top_k : kCandidates;
  return std::min(k, n_ids);
}
// Whether it has a use for the RowMass of the row (at `filters.filter_temperature()`).
inline bool wants_row_mass(const Filters& filters, int64_t n_ids) {
  return !filters.greedy() && filters.top_p < 1 && !filters.has_top_k(n_ids) && (filters.order == FilterOrder::hf || filters.min_p <= 0) &&
         !(filters.order == FilterOrder::llama_cpp && filters.typical_p < 1);
}

// One object a worker; memory is kept between rows. What it says of a row is valid until the next one, and while the row is.
template <class T>
class Kept {
 public:
  explicit Kept(const KernelTable& table) : table_(table), masses_(table) {}

  // Of a row, its logits side by side. row_sum: RowMass::sum of the row, where somebody has it.
  void filter_row(const T* y, int64_t n_ids, const Filters& filters, const LogSum<double>* row_sum = nullptr);

  // The same, bit for bit, from the n_best(filters, n_ids) best logits of a row in any order (all of them where there are fewer); row_sum:
  // RowMass::sum of the row, or null. False where that does not suffice, and then it says nothing: filter_row has to be called.
  template <class Candidate>
  bool filter_best(const Candidate* best, int64_t count, int64_t n_ids, const LogSum<double>* row_sum, const Filters& filters) {
    begin(nullptr, n_ids, filters);
    for (int64_t i = 0; i < count; ++i) put(best[i].value, best[i].id());
    std::sort(head_.begin(), head_.end(), [](const Entry& a, const Entry& b) { return a.better(b); });
    return run(row_sum);
  }

  // Either a list, or all that passes a cut-off (for filter_row only): what would take longer to list than to test.
  bool is_list() const { return is_list_; }
  int64_t count() const { return static_cast<int64_t>(ids_.size()); }
  const int64_t* ids() const { return ids_.data(); }  // by rank; where there are more than kListedTopK, by id
  const T* values() const { return values_.data(); }
  const CutOff<T>& cut_off() const { return cut_off_; }

  // The greatest logit that is kept. NaN or +inf where the row has that, -inf where there is no other: then the list is empty, but for
  // the first +inf at temperature 0.
  T max();
  // The mass of all that is kept, relative to max(), at the row's temperature: 1 or more. At temperature 0 it is 1.
  double mass();

 private:
  using Entry = LongCandidate<T>;

  struct Place {  // of the head, under typical_p
    double far;
    int64_t id;
    size_t at;
  };
  // What is filtered: a row, or some of one.
  struct Set {
    const T* values;
    const int64_t* ids;  // null: 0, 1, ...
    int64_t n;
  };

  void begin(const T* y, int64_t n_ids, const Filters& filters);
  void put(T value, int64_t id) {
    if (!(value == -std::numeric_limits<T>::infinity())) head_.emplace_back(value, id);
    else complete_ = true;
  }
  void list_best(int64_t k);
  template <class Candidate> void take_best(TopList<Candidate>& list, int64_t k);
  bool run(const LogSum<double>* row_sum);

  // One filter each, on what is left: `head_` where it is complete, else what passes `cut_off_` of the set.
  bool apply_top_p(const LogSum<double>* row_sum);
  void apply_min_p();
  bool apply_typical_p();
  void typical_of_head();
  void typical_of_set();
  bool apply_large_top_k();
  void cut(const CutOff<T>& at);

  T least_of_mass(double mass);
  double weigh_head();
  double lower_end(double total, double share) const;
  int64_t id_of(int64_t place) const { return set_.ids ? set_.ids[place] : place; }
  template <class Value, class Visit> void look(const Value& value, const Visit& visit);
  template <class Value, class Visit> void scan(const Value& value, const Visit& visit);
  template <class Value> CutOff<double> find(const Value& value, double low, double high, double total, double share);
  double total_of_set();
  void list_set();
  void make_list();
  void weigh();

  const KernelTable& table_;
  Masses masses_;
  RowMass row_mass_;
  ShareOfMass share_;
  TopList<ShortCandidate> short_list_;
  TopList<LongCandidate<T>> long_list_;

  Filters filters_;
  int64_t n_ids_ = 0;
  Set set_{};
  std::vector<Entry> head_;          // the best of what is left, by rank
  std::vector<double> head_masses_;
  std::vector<Place> places_;
  bool complete_ = false;            // the head is all that is left
  CutOff<T> cut_off_;
  bool is_list_ = false;
  std::vector<int64_t> ids_;
  std::vector<T> values_;
  bool knows_max_ = false;
  T max_ = 0;
  double mass_ = 0;                  // 0: not known
};

}  // namespace lmhead
