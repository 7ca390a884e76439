// What filters keep of rows, for tests; and the distribution that a draw is made from, for `verify`.
#include <atomic>
#include <memory>

#include "bindings/arguments/operand.hpp"
#include "bindings/arguments/options.hpp"
#include "bindings/topics.hpp"
#include "consumers/kept.hpp"
#include "core/parallel.hpp"
#include "core/read.hpp"
#include "dispatch/tables.hpp"

namespace lmhead {
namespace {

FilterOrder filter_order(const std::string& name) {
  if (name == "hf") return FilterOrder::hf;
  if (name == "vllm") return FilterOrder::vllm;
  if (name == "llama.cpp") return FilterOrder::llama_cpp;
  value_error("order", "'hf', 'vllm' or 'llama.cpp'", "'" + name + "'");
}

// A number a row, or one for all.
template <class Number>
class PerRow {
 public:
  PerRow(const char* name, py::handle object, int64_t n_rows) : values_(py::array_t<Number, py::array::c_style | py::array::forcecast>::ensure(object)) {
    if (!values_ || (values_.size() != 1 && values_.size() != n_rows))
      value_error(name, "a number, or one for each of " + std::to_string(n_rows) + " rows", value_text(object));
  }
  Number at(int64_t row) const { return values_.data()[values_.size() == 1 ? 0 : row]; }

 private:
  py::array_t<Number, py::array::c_style | py::array::forcecast> values_;
};

struct RowFilters {
  PerRow<double> temperature;
  PerRow<int64_t> top_k;
  PerRow<double> top_p, min_p, typical_p;
  FilterOrder order;

  Filters at(int64_t row) const { return {temperature.at(row), top_k.at(row), top_p.at(row), min_p.at(row), typical_p.at(row), order}; }
};

// Filters every row and hands it over: use(worker, row, y, kept).
template <class T, class Use>
void filter_rows(const Rows& logits, const RowFilters& filters, int threads, const Use& use) {
  const KernelTable& kernels = table();
  const Reader<T> reader(kernels, logits);
  struct Scratch {
    explicit Scratch(const KernelTable& t) : kept(t) {}
    Kept<T> kept;
    Buffer<T> row;
    Buffer<char> temporary;
  };
  std::vector<std::unique_ptr<Scratch>> scratch;
  for (int worker = 0; worker < threads; ++worker) scratch.push_back(std::make_unique<Scratch>(kernels));
  run_tasks(threads, logits.n_rows, [&](int worker, int64_t row) {
    Scratch& mine = *scratch[static_cast<size_t>(worker)];
    const T* y = reader.read(row, 0, logits.width, mine.row.reserve(logits.width), mine.temporary);
    mine.kept.filter_row(y, logits.width, filters.at(row));
    use(worker, row, y, mine.kept);
  });
}

struct KeptRow {
  std::vector<int64_t> ids;
  double max = 0, mass = 0;
  bool is_list = false, from_best = false;
};

template <class T, class Candidate>
KeptRow kept_of_row(const KernelTable& kernels, const T* y, int64_t n, const Filters& filters, Kept<T>& kept, bool from_best) {
  KeptRow result;
  if (from_best) {  // as a fold would have it: the best, and the row's mass from blocks in any order
    TopList<Candidate> list;
    const int64_t k = n_best(filters, n);
    if (k > 0) {
      list.start(k);
      list.add(kernels, y, n, 0);
      list.sort();
    }
    RowMass row_mass;
    row_mass.start(n, filters.filter_temperature());
    for (int64_t first = (ceil_div(n, kBlockIds) - 1) * kBlockIds; first >= 0; first -= kBlockIds)
      row_mass.add(kernels, y + first, std::min(kBlockIds, n - first), first);
    const LogSum<double> sum = row_mass.sum(kernels);
    result.from_best = k > 0 && kept.filter_best(list.begin(), k, n, wants_row_mass(filters, n) ? &sum : nullptr, filters);
  }
  if (!result.from_best) kept.filter_row(y, n, filters);
  result.is_list = kept.is_list();
  result.max = double(kept.max());
  result.mass = kept.mass();
  if (result.is_list) result.ids.assign(kept.ids(), kept.ids() + kept.count());
  else
    for (int64_t id = 0; id < n; ++id)
      if (kept.cut_off().keeps(y[id], id)) result.ids.push_back(id);
  return result;
}

RowFilters row_filters(int64_t n_rows, py::handle temperature, py::handle top_k, py::handle top_p, py::handle min_p, py::handle typical_p,
                       const std::string& order) {
  return {{"temperature", temperature, n_rows}, {"top_k", top_k, n_rows},         {"top_p", top_p, n_rows},
          {"min_p", min_p, n_rows},             {"typical_p", typical_p, n_rows}, filter_order(order)};
}

// Of each row (ids in the order they are kept in, the greatest logit, the mass relative to it, whether it was a list, whether the best sufficed).
py::list kept_ids(py::handle object, py::handle temperature, py::handle top_k, py::handle top_p, py::handle min_p, py::handle typical_p,
                  const std::string& order, bool from_best, py::handle threads) {
  const Operand logits = row_operand("logits", "(..., V)", object);
  const Rows rows = logits.rows();
  const RowFilters filters = row_filters(rows.n_rows, temperature, top_k, top_p, min_p, typical_p, order);
  const int n_threads = threads_option(threads);
  std::vector<KeptRow> results(static_cast<size_t>(rows.n_rows));
  const auto run = [&](auto number, auto candidate) {
    using T = decltype(number);
    const KernelTable& kernels = table();
    filter_rows<T>(rows, filters, n_threads, [&](int, int64_t row, const T* y, Kept<T>& kept) {
      results[static_cast<size_t>(row)] = kept_of_row<T, decltype(candidate)>(kernels, y, rows.width, filters.at(row), kept, from_best);
    });
  };
  {
    const py::gil_scoped_release release;
    if (logits.dtype == DType::float64) run(double{}, LongCandidate<double>{});
    else run(float{}, ShortCandidate{});
  }
  py::list list;
  for (const KeptRow& r : results)
    list.append(py::make_tuple(py::array_t<int64_t>(static_cast<py::ssize_t>(r.ids.size()), r.ids.data()), r.max, r.mass, r.is_list, r.from_best));
  return list;
}

// False where there is nothing to draw from.
template <class T>
bool write_probabilities(Masses& masses, const T* y, int64_t n, const Filters& filters, Kept<T>& kept, double* out) {
  std::fill(out, out + n, 0.0);
  if (filters.greedy()) {
    if (kept.count() == 0) return false;
    out[kept.ids()[0]] = 1;
    return true;
  }
  const double max = double(kept.max()), total = kept.mass();
  if (!(max - max == 0)) return false;
  masses.start(max, filters.temperature);
  const int64_t count = kept.is_list() ? kept.count() : n;
  const T* values = kept.is_list() ? kept.values() : y;
  for (int64_t first = 0; first < count; first += Masses::kMost) {
    const int64_t most = std::min(Masses::kMost, count - first);
    const double* of = masses.of(values + first, most);
    for (int64_t i = first; i < first + most; ++i) {
      if (kept.is_list()) out[kept.ids()[i]] = of[i - first] / total;
      else if (kept.cut_off().keeps(y[i], i)) out[i] = of[i - first] / total;
    }
  }
  return true;
}

// (..., V) of float64: the probability of each id under its row's draw, 0 where it is not kept.
py::array_t<double> processed_probabilities(py::handle object, py::handle temperature, py::handle top_k, py::handle top_p, py::handle min_p,
                                            py::handle typical_p, const std::string& order, py::handle threads, const std::string& name) {
  const Operand logits = row_operand("logits", "(..., V)", object);
  const Rows rows = logits.rows();
  const RowFilters filters = row_filters(rows.n_rows, temperature, top_k, top_p, min_p, typical_p, order);
  const int n_threads = threads_option(threads);
  py::array_t<double> probabilities(logits.shape);
  double* out = probabilities.mutable_data();
  const KernelTable& kernels = table();
  std::vector<Masses> masses;
  for (int worker = 0; worker < n_threads; ++worker) masses.emplace_back(kernels);
  std::atomic<int64_t> wrong_row{-1};
  const auto run = [&](auto number) {
    using T = decltype(number);
    filter_rows<T>(rows, filters, n_threads, [&](int worker, int64_t row, const T* y, Kept<T>& kept) {
      if (!write_probabilities(masses[static_cast<size_t>(worker)], y, rows.width, filters.at(row), kept, out + row * rows.width)) wrong_row = row;
    });
  };
  {
    const py::gil_scoped_release release;
    if (logits.dtype == DType::float64) run(double{});
    else run(float{});
  }
  if (wrong_row >= 0) value_error(name.c_str(), "finite logits to draw from in row " + std::to_string(wrong_row), "NaN, +inf, or none above -inf");
  return probabilities;
}

}  // namespace

void bind_filters(py::module_& m) {
  m.def("kept_ids", &kept_ids, py::arg("logits"), py::arg("temperature") = 1.0, py::arg("top_k") = 0, py::arg("top_p") = 1.0, py::arg("min_p") = 0.0,
        py::arg("typical_p") = 1.0, py::arg("order") = "hf", py::arg("from_best") = false, py::arg("threads") = py::none());
  m.def("processed_probabilities", &processed_probabilities, py::arg("logits"), py::arg("temperature") = 1.0, py::arg("top_k") = 0,
        py::arg("top_p") = 1.0, py::arg("min_p") = 0.0, py::arg("typical_p") = 1.0, py::arg("order") = "hf", py::arg("threads") = py::none(),
        py::arg("name") = "logits");
}

}  // namespace lmhead
