#include "consumers/kept.hpp"

#include <cmath>

#include "core/log1p.hpp"

namespace lmhead {
namespace {

// The number that `order_of` makes this of.
template <class T>
T value_of(uint64_t order) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr Bits sign = Bits(1) << (8 * sizeof(T) - 1);
  const Bits bits = static_cast<Bits>(order);
  const Bits stored = bits & sign ? bits ^ sign : static_cast<Bits>(~bits);
  T x;
  std::memcpy(&x, &stored, sizeof(x));
  return x;
}

constexpr int64_t kAnyId = std::numeric_limits<int64_t>::max();

}  // namespace

template <class T>
void Kept<T>::begin(const T* row, int64_t n_ids, const Filters& filters) {
  filters_ = filters;
  n_ids_ = n_ids;
  set_ = {row, nullptr, n_ids};
  head_.clear();
  complete_ = false;
  cut_off_ = {};
  is_list_ = false;
  listed_.n = 0;
  knows_max_ = false;
  rest_ = -1;
}

template <class T>
void Kept<T>::filter_row(const T* row, int64_t n_ids, const Filters& filters) {
  const int64_t k = n_best(filters, n_ids);
  const auto filter_by = [&](auto& list) {
    list.start(std::max<int64_t>(1, k));
    if (k > 0) list.add(table_, row, n_ids, 0);
    list.sort();
    filter(list.begin(), k, row, n_ids, nullptr, filters);
  };
  if constexpr (sizeof(T) == 4) {
    if (n_ids < kShortIds) return filter_by(short_list_);
  }
  filter_by(long_list_);
}

template <class T>
bool Kept<T>::run(const LogSum<double>* row_sum) {
  const T first = head_.empty() ? -std::numeric_limits<T>::infinity() : head_[0].value;
  max_ = first;
  knows_max_ = true;
  if (!(first - first == 0) || filters_.greedy()) {  // nothing can be weighed, or nothing has to
    head_.resize(filters_.greedy() && first == first ? std::min<size_t>(head_.size(), 1) : 0);
    complete_ = true;
    make_list();
    rest_ = 0;
    return true;
  }
  masses_.start(double(first), filters_.filter_temperature());
  head_masses_.clear();
  const bool top_k = filters_.has_top_k(n_ids_);
  if (top_k && filters_.top_k <= kListedTopK) complete_ = true;
  else if (top_k && !apply_large_top_k()) return false;
  // min_p before top_k is min_p after it: both keep the best, whatever else there is.
  if (filters_.order == FilterOrder::llama_cpp) {
    if (!apply_typical_p() || !apply_top_p(row_sum)) return false;
    apply_min_p();
  } else if (filters_.order == FilterOrder::vllm) {
    apply_min_p();
    if (!apply_top_p(row_sum) || !apply_typical_p()) return false;
  } else {
    if (!apply_top_p(row_sum)) return false;
    apply_min_p();
    if (!apply_typical_p()) return false;
  }
  if (complete_ || set_.ids) make_list();
  return is_list_ || set_.values != nullptr;
}

// What is left is what passes; of the head a part, and then that is all.
template <class T>
void Kept<T>::cut(const CutOff<T>& at) {
  cut_off_.tighten(at);
  size_t n = head_.size();
  while (n > 0 && !cut_off_.keeps(head_[n - 1].value, head_[n - 1].id())) --n;
  if (n < head_.size()) complete_ = true;
  head_.resize(n);
}

// Masses of the head, and their sum.
template <class T>
double Kept<T>::weigh_head() {
  head_masses_.resize(head_.size());
  double sum = 0;
  T values[Masses::kMost];
  for (size_t first = 0; first < head_.size(); first += Masses::kMost) {
    const size_t n = std::min<size_t>(Masses::kMost, head_.size() - first);
    for (size_t i = 0; i < n; ++i) values[i] = head_[first + i].value;
    const double* masses = masses_.of(values, static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) sum += head_masses_[first + i] = masses[i];
  }
  return sum;
}

// A set, some at a time by ascending id: visit(values, y, first, n), where values are value(y), and -inf of what does not pass the cut-off.
template <class T>
template <class Value, class Visit>
void Kept<T>::look(const Set& set, const Value& value, const Visit& visit) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  double values[Masses::kMost];
  const bool all = cut_off_.keeps_all();
  for (int64_t first = 0; first < set.n; first += Masses::kMost) {
    const int64_t n = std::min(Masses::kMost, set.n - first);
    const T* y = set.values + first;
    if (all)
      for (int64_t i = 0; i < n; ++i) values[i] = value(y[i]);
    else
      for (int64_t i = 0; i < n; ++i) values[i] = cut_off_.keeps(y[i], set.id_of(first + i)) ? value(y[i]) : none;
    visit(values, y, first, n);
  }
}

// The same with masses: visit(values, masses, n), 0 of what does not pass.
template <class T>
template <class Value, class Visit>
void Kept<T>::scan(const Set& set, const Value& value, const Visit& visit) {
  double kept_masses[Masses::kMost];
  const bool all = cut_off_.keeps_all();
  look(set, value, [&](const double* values, const T* y, int64_t first, int64_t n) {
    const double* masses = masses_.of(y, n);
    if (all) return visit(values, masses, n);
    for (int64_t i = 0; i < n; ++i) kept_masses[i] = cut_off_.keeps(y[i], set.id_of(first + i)) ? masses[i] : 0;
    visit(values, kept_masses, n);
  });
}

template <class T>
template <class Value>
CutOff<double> Kept<T>::find(const Set& set, const Value& value, double low, double high, double total, double share) {
  return share_.find([&](const auto& visit) { scan(set, value, visit); }, [&](const auto& visit) { look(set, value, visit); },
                     [&](int64_t i) { return set.id_of(i); }, &masses_, low, high, total, share);
}

// What of the set passes the cut-off and is not below `low`: some per cent of a row, where all of it has to be weighed otherwise. It is
// valid until the next call.
template <class T>
typename Kept<T>::Set Kept<T>::not_below(double low) {
  near_.reserve(set_.n);
  near_.n = 0;
  // Rounded up or down, it is the nearest: no number of the type that is not below `low` is below it.
  const T nearest = static_cast<T>(std::max(low, double(std::numeric_limits<T>::lowest())));
  const T below = std::nextafter(nearest, -std::numeric_limits<T>::infinity());
  uint16_t places[kBlockIds];
  for (int64_t first = 0; first < set_.n; first += kBlockIds) {
    const T* y = set_.values + first;
    const int64_t found = row_kernels<T>(table_).select(y, std::min(kBlockIds, set_.n - first), below, places);
    for (int64_t i = 0; i < found; ++i) {
      const int64_t id = set_.id_of(first + places[i]);
      if (cut_off_.keeps(y[places[i]], id)) near_.append(y[places[i]], id);
    }
  }
  return near_.set();
}

// What is left of `some`, the last set that `not_below` found, is that whose value(y) passes `last`.
template <class T>
template <class Value>
void Kept<T>::keep(const Set& some, const Value& value, const CutOff<double>& last) {
  near_.n = 0;  // written behind what is read
  look(some, value, [&](const double* values, const T* y, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      if (last.keeps(values[i], some.id_of(first + i))) near_.append(y[i], some.id_of(first + i));
  });
  std::swap(listed_, near_);
  set_ = listed_.set();
  cut_off_ = {};
  head_.clear();
}

template <class T>
double Kept<T>::total_of_set() {
  if (set_.ids) {
    double sum = 0;
    scan(set_, [](T y) { return double(y); }, [&](const double*, const double* masses, int64_t n) {
      for (int64_t i = 0; i < n; ++i) sum += masses[i];
    });
    return sum;
  }
  row_mass_.start(set_.n, masses_.temperature());
  row_mass_.add(table_, set_.values, set_.n, 0, cut_off_);
  return 1 + row_mass_.sum(table_).rest;
}

// A distance (max - y) / temperature beyond which ids cannot be kept: so far down each has less than (1 - share) / n of the total, and
// all of them together less than what a share leaves over. With a margin for every rounding on the way.
template <class T>
double Kept<T>::lower_end(double total, double share) const {
  const double least = (1 - share) * total / double(set_.n) * 0.999;
  const double inverse = 1 / least;
  return inverse < std::numeric_limits<double>::max() ? std::min(800.0, log1p_of(std::max(0.0, inverse - 1))) : 800.0;
}

template <class T>
bool Kept<T>::apply_top_p(const LogSum<double>* row_sum) {
  const double p = filters_.top_p;
  if (p >= 1) return true;
  double total = weigh_head();
  if (!complete_) {
    if (row_sum && cut_off_.keeps_all()) total = 1 + row_sum->rest;
    else if (set_.values) total = total_of_set();
    else return false;
  }
  double before = 0;
  size_t n = 0;
  for (; n < head_.size() && before / total < p; ++n) before += head_masses_[n];
  if (n < head_.size() || complete_ || !(before / total < p)) {
    head_.resize(n);
    return complete_ = true;
  }
  if (!set_.values) return false;
  const double max = masses_.max();
  const double low = std::max(max - masses_.temperature() * lower_end(total, p) - std::fabs(max) * 1e-15, double(std::numeric_limits<T>::lowest()));
  const Set some = not_below(low);
  const auto value = [](T y) { return double(y); };
  const CutOff<double> last = find(some, value, low, max, total, p);
  if (last.keeps_all()) return true;
  if (some.n <= n_ids_ / kListable) keep(some, value, last);
  else cut({static_cast<T>(last.value), last.last_id});
  return true;
}

// The least value whose mass is not below `mass` (in (0, 1]).
template <class T>
T Kept<T>::least_of_mass(double mass) {
  uint64_t kept = order_of(static_cast<T>(masses_.max())), lost = order_of(-std::numeric_limits<T>::infinity());
  while (kept - lost > 1) {
    const uint64_t middle = lost + (kept - lost) / 2;
    (masses_.of(double(value_of<T>(middle))) >= mass ? kept : lost) = middle;
  }
  return value_of<T>(kept);
}

template <class T>
void Kept<T>::apply_min_p() {
  if (filters_.min_p > 0) cut({least_of_mass(filters_.min_p), kAnyId});
}

// |log q + H| is |distance - mean distance|: both have the logarithm of the total.
template <class T>
bool Kept<T>::apply_typical_p() {
  if (filters_.typical_p >= 1) return true;
  if (complete_) typical_of_head();
  else if (set_.values) typical_of_set();
  else return false;
  // Whoever weighs what is left weighs it relative to its own greatest, which may no longer be the row's.
  max_ = complete_ ? head_[0].value : *std::max_element(set_.values, set_.values + set_.n);
  masses_.start(double(max_), masses_.temperature());
  return true;
}

template <class T>
void Kept<T>::typical_of_head() {
  const double total = weigh_head();
  double gap = 0;
  for (size_t i = 0; i < head_.size(); ++i)
    if (head_masses_[i] > 0) gap += head_masses_[i] * masses_.distance(head_[i].value);
  const double mean = gap / total;
  places_.clear();
  for (size_t i = 0; i < head_.size(); ++i) places_.push_back({std::fabs(masses_.distance(head_[i].value) - mean), head_[i].id(), i});
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.far != b.far ? a.far < b.far : a.id < b.id; });
  double before = 0;
  size_t n = 0;
  for (; n < places_.size() && before / total < filters_.typical_p; ++n) before += head_masses_[places_[n].at];
  places_.resize(n);
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.at < b.at; });  // by rank again
  for (size_t i = 0; i < n; ++i) head_[i] = head_[places_[i].at];
  head_.resize(n);
}

template <class T>
void Kept<T>::typical_of_set() {
  const double p = filters_.typical_p;
  double total = 0, gap = 0;
  scan(set_, [&](T y) { return masses_.distance(y); }, [&](const double* distances, const double* masses, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      total += masses[i];
      gap += masses[i] > 0 ? masses[i] * distances[i] : 0;
    }
  });
  const double mean = gap / total;
  const auto near = [&](T y) { return -std::fabs(masses_.distance(y) - mean); };
  const double farthest = std::max(mean, lower_end(total, p) - mean) * (1 + 1e-12) + 1e-12;
  const Set some = not_below(masses_.max() - masses_.temperature() * (mean + farthest) * (1 + 1e-12) - std::fabs(masses_.max()) * 1e-15);
  keep(some, near, find(some, near, -farthest, 0, total, p));
}

// Everything counts alike: the mass that is reached is a number of ids.
template <class T>
bool Kept<T>::apply_large_top_k() {
  if (!set_.values) return false;
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> ones(Masses::kMost, 1.0);
  double low = masses_.max();
  const auto value = [](T y) { return double(y); };
  look(set_, value, [&](const double* values, const T*, int64_t, int64_t n) {
    for (int64_t i = 0; i < n; ++i) low = values[i] > -infinity ? std::min(low, values[i]) : low;
  });
  const auto count = [&](const auto& visit) { look(set_, value, [&](const double* values, const T*, int64_t, int64_t n) { visit(values, ones.data(), n); }); };
  const CutOff<double> last = share_.find(count, [&](const auto& visit) { look(set_, value, visit); }, [](int64_t id) { return id; }, nullptr, low,
                                          masses_.max(), double(filters_.top_k), 1.0);
  if (!last.keeps_all()) cut({static_cast<T>(last.value), last.last_id});
  return true;
}

template <class T>
void Kept<T>::make_list() {
  is_list_ = true;
  if (!complete_ && cut_off_.keeps_all()) return;  // the set is a list
  if (!complete_) return keep(not_below(-std::numeric_limits<double>::infinity()), [](T y) { return double(y); }, {});
  listed_.reserve(static_cast<int64_t>(head_.size()));
  listed_.n = 0;
  for (const Entry& entry : head_) listed_.append(entry.value, entry.id());
}

template <class T>
T Kept<T>::max() {
  if (!knows_max_) weigh();
  return max_;
}

template <class T>
double Kept<T>::rest() {
  if (rest_ < 0) weigh();
  return rest_;
}

template <class T>
void Kept<T>::weigh() {
  if (is_list_) {
    masses_.start(double(max_), filters_.temperature);
    const int64_t best = std::max_element(values(), values() + count()) - values();
    rest_ = 0;
    for (int64_t first = 0; first < count(); first += Masses::kMost) {
      const int64_t n = std::min(Masses::kMost, count() - first);
      const double* masses = masses_.of(values() + first, n);
      for (int64_t i = 0; i < n; ++i)
        if (first + i != best) rest_ += masses[i];
    }
    return;
  }
  row_mass_.start(set_.n, filters_.temperature);
  row_mass_.add(table_, set_.values, set_.n, 0, cut_off_);
  const LogSum<double> sum = row_mass_.sum(table_);
  max_ = static_cast<T>(sum.max);
  knows_max_ = true;
  rest_ = sum.rest;
}

template class Kept<float>;
template class Kept<double>;

}  // namespace lmhead
