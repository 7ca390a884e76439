// Which ids of a row are kept under top_k, top_p, min_p and typical_p, and what they weigh.
// It knows one row of processed logits, or its best; it refuses to know where they come from and how a token is drawn.
//
// Precision: masses are exp((y - max) / temperature) in float64, each a function of y alone. Sums of masses have one order: of a list its
// own (by rank or by id); of a row that of RowMass; within ShareOfMass as it says. Ties by ascending id. -inf is never kept.
// No filter sorts a row: the best few come from a TopList, and where they hold too little a threshold is found among
// what lies above a bound.
#pragma once

#include <vector>

#include "consumers/masses.hpp"
#include "consumers/share_of_mass.hpp"
#include "consumers/top_k.hpp"
#include "core/filters.hpp"

namespace lmhead {

// Best logits that are tried before whole rows: a nucleus is rarely wider. 256 cost a few microseconds more than 50.
constexpr int64_t kCandidates = 256;
// The greatest top_k whose ids are listed; above it a threshold takes their place.
constexpr int64_t kListedTopK = 4096;
// Of a row's ids one in so many may be listed where a threshold has been found: an entry of a list takes four times as long as an id of a row.
constexpr int64_t kListable = 4;

// How many of the best logits of a row `Kept::filter` wants, no more and no fewer unless the row has fewer; 0: none, for all is kept.
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

  // Of a row, its logits side by side.
  void filter_row(const T* row, int64_t n_ids, const Filters& filters);

  // The same, bit for bit, given the n_best(filters, n_ids) best of the row in any order (all of them where there are fewer) and
  // RowMass::sum of it, or null. `row` may be null: false where it is needed, and then nothing is said of it. Where min_p is the first
  // filter and there is no row, any number of the best from 1 on will do.
  template <class Candidate>
  bool filter(const Candidate* best, int64_t count, const T* row, int64_t n_ids, const LogSum<double>* row_sum, const Filters& filters) {
    begin(row, n_ids, filters);
    if (filters.keeps_all(n_ids)) return row != nullptr;
    complete_ = count == n_ids;
    for (int64_t i = 0; i < count; ++i) put(best[i].value, best[i].id());
    std::sort(head_.begin(), head_.end(), [](const Entry& a, const Entry& b) { return a.better(b); });
    return run(row_sum);
  }

  // Either a list, or all that passes a cut-off (of a row alone): what would take longer to list than to test.
  bool is_list() const { return is_list_; }
  int64_t count() const { return listed_.n; }
  const int64_t* ids() const { return listed_.ids.get(); }  // by rank where the best of the row sufficed, else by id
  const T* values() const { return listed_.values.get(); }
  const CutOff<T>& cut_off() const { return cut_off_; }

  // The greatest logit that is kept. NaN or +inf where the row has that, -inf where there is no other: then the list is empty, but for
  // the first +inf at temperature 0.
  T max();
  // The mass of all that is kept but the first greatest, relative to it, at the row's temperature; 0 at temperature 0.
  double rest();
  double mass() { return 1 + rest(); }

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
    int64_t id_of(int64_t place) const { return ids ? ids[place] : place; }
  };

  // A set of its own.
  struct List {
    Buffer<T> values;
    Buffer<int64_t> ids;
    int64_t n = 0;
    void reserve(int64_t most) {
      values.reserve(most);
      ids.reserve(most);
    }
    void append(T value, int64_t id) {
      values[n] = value;
      ids[n++] = id;
    }
    Set set() const { return {values.get(), ids.get(), n}; }
  };

  void begin(const T* row, int64_t n_ids, const Filters& filters);
  void put(T value, int64_t id) {
    if (!(value == -std::numeric_limits<T>::infinity())) head_.emplace_back(value, id);
    else complete_ = true;
  }
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
  template <class Value, class Visit> void look(const Set& set, const Value& value, const Visit& visit);
  template <class Value, class Visit> void scan(const Set& set, const Value& value, const Visit& visit);
  template <class Value> CutOff<double> find(const Set& set, const Value& value, double low, double high, double total, double share);
  Set not_below(double low);
  template <class Value> void keep(const Set& some, const Value& value, const CutOff<double>& last);
  double total_of_set();
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
  List listed_, near_;
  bool knows_max_ = false;
  T max_ = 0;
  double rest_ = -1;                 // -1: not known
};

}  // namespace lmhead
