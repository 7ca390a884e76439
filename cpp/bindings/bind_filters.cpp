// What filters keep of rows, for tests; and the distribution that a draw is made from, for `verify`.
#include "bindings/arguments/allowed_ids.hpp"
#include "bindings/arguments/options.hpp"
#include "bindings/arguments/sample_options.hpp"
#include "bindings/topics.hpp"
#include "ops/filtered_rows.hpp"
#include "ops/probabilities.hpp"

namespace lmhead {
namespace {

// What is not given does nothing.
py::kwargs with_defaults(const py::kwargs& given) {
  py::kwargs all;
  for (const char* name : {"mask", "allowed_ids", "logit_bias", "history", "output", "threads"}) all[name] = py::none();
  for (const char* name : {"temperature", "top_p", "typical_p", "repetition_penalty"}) all[name] = 1.0;
  for (const char* name : {"min_p", "presence_penalty", "frequency_penalty"}) all[name] = 0.0;
  all["top_k"] = 0;
  all["order"] = "hf";
  for (const auto& [name, value] : given) all[name] = value;
  return all;
}

// Logits and what is done with them before a draw.
struct Filtered {
  Operand logits;
  Allowed allowed;
  SampleOptions options;
  int threads;

  Filtered(py::handle object, const py::kwargs& given)
      : logits(row_operand("logits", "(..., V)", object)),
        allowed(allowed_argument(py::object(given["mask"]), py::object(given["allowed_ids"]), logits).allowed),
        threads(threads_option(py::object(given["threads"]))) {
    const RowShape rows{leading(logits.shape), "logits of shape " + shape_text(logits.shape)};
    add_filters(given, rows, options);
    add_edits(given, rows, logits.shape.back(), options);
  }
};

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
    result.from_best = k > 0 && kept.filter(list.begin(), k, static_cast<const T*>(nullptr), n, wants_row_mass(filters, n) ? &sum : nullptr, filters);
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

// Of each row (ids in the order they are kept in, the greatest logit, the mass relative to it, whether it was a list, whether the best sufficed).
py::list kept_ids(py::handle object, bool from_best, const py::kwargs& given) {
  const Filtered f(object, with_defaults(given));
  const Rows rows = f.logits.rows();
  std::vector<KeptRow> results(static_cast<size_t>(rows.n_rows));
  const auto run = [&](auto number, auto candidate) {
    using T = decltype(number);
    filtered_rows<T>(rows, f.allowed, f.options, f.threads, [&](int, int64_t row, const T* y, Kept<T>& kept) {
      const auto r = static_cast<size_t>(row);
      results[r] = kept_of_row<T, decltype(candidate)>(table(), y, rows.width, f.options.rows[r].filters, kept, from_best);
    });
  };
  {
    const py::gil_scoped_release release;
    if (f.logits.dtype == DType::float64) run(double{}, LongCandidate<double>{});
    else run(float{}, ShortCandidate{});
  }
  py::list list;
  for (const KeptRow& r : results)
    list.append(py::make_tuple(py::array_t<int64_t>(static_cast<py::ssize_t>(r.ids.size()), r.ids.data()), r.max, r.mass, r.is_list, r.from_best));
  return list;
}

// (..., V) of float64. `name`: whose logits they are.
py::array_t<double> processed_probabilities(py::handle object, const std::string& name, const py::kwargs& given) {
  const Filtered f(object, with_defaults(given));
  const Rows rows = f.logits.rows();
  py::array_t<double> found(f.logits.shape);
  double* out = found.mutable_data();
  int64_t wrong = -1;
  {
    const py::gil_scoped_release release;
    wrong = probabilities(rows, f.allowed, f.options, out, f.threads);
  }
  if (wrong >= 0) value_error(name, "finite logits to draw from in row " + std::to_string(wrong), "NaN, +inf, or none above -inf");
  return found;
}

py::array_t<double> logarithms_of(py::handle object, py::handle threads) {
  const Operand numbers = row_operand("numbers", "(..., n)", object);
  if (numbers.dtype != DType::float64) type_error("numbers", "float64", dtype_text(numbers.dtype));
  const int n_threads = threads_option(threads);
  const Rows rows = numbers.rows();
  py::array_t<double> found(numbers.shape);
  double* out = found.mutable_data();
  const py::gil_scoped_release release;
  logarithms(rows, out, n_threads);
  return found;
}

}  // namespace

void bind_filters(py::module_& m) {
  m.def("kept_ids", &kept_ids, py::arg("logits"), py::arg("from_best") = false);
  m.def("processed_probabilities", &processed_probabilities, py::arg("logits"), py::arg("name") = "logits");
  m.def("logarithms", &logarithms_of, py::arg("numbers"), py::arg("threads") = py::none());
}

}  // namespace lmhead
