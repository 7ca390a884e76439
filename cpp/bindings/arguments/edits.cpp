#include "bindings/arguments/edits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bindings/arguments/array.hpp"
#include "bindings/arguments/dlpack.hpp"
#include "bindings/arguments/ids.hpp"
#include "bindings/arguments/integers.hpp"
#include "bindings/arguments/options.hpp"

namespace lmhead {
namespace {

bool is_mapping(py::handle object) {
  if (PyDict_Check(object.ptr())) return true;
  return py::hasattr(object, "keys") && py::isinstance(object, py::module_::import("collections.abc").attr("Mapping"));
}
// Its items, as a dictionary has them.
py::dict items_of(py::handle mapping) { return py::dict(py::reinterpret_borrow<py::object>(mapping)); }

// One row's ids: {id: count}, or an array or flat sequence of ids.
bool is_ids(py::handle object) {
  if (is_mapping(object)) return true;
  if (py::isinstance<py::array>(object)) {
    const auto array = py::reinterpret_borrow<py::array>(object);
    return array.ndim() == 1 && array.dtype().kind() != 'O';
  }
  if (speaks_dlpack(object)) return py::len(object.attr("shape")) == 1;
  if (!is_sequence_of_numbers(object)) return false;
  const auto sequence = py::reinterpret_borrow<py::sequence>(object);
  if (py::len(sequence) == 0) return true;
  const py::object first = sequence[0];
  const bool has_axes = py::isinstance<py::array>(first) ? py::reinterpret_borrow<py::array>(first).ndim() > 0 : PySequence_Check(first.ptr()) || speaks_dlpack(first);
  return !first.is_none() && !is_mapping(first) && !has_axes;
}

struct RowIds {
  const char* name;
  const RowShape& rows;
  int64_t vocabulary;

  int64_t key(py::handle object, int64_t row) const {
    const py::int_ index = any_integer_option(name, object, "an integer as key");
    int overflow = 0;
    const long long id = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (overflow != 0 || id < 0 || id >= vocabulary) index_error(name, id_text(vocabulary), value_text(index) + rows.in_row(row));
    return id;
  }

  int64_t count_of(py::handle object, int64_t row) const {
    const std::string wanted = "an integer of at least 0 as count of an id";
    const py::int_ count = any_integer_option(name, object, wanted);
    int overflow = 0;
    const long long n = PyLong_AsLongLongAndOverflow(count.ptr(), &overflow);
    if (overflow < 0 || n < 0) value_error(name, wanted, value_text(count) + rows.in_row(row));
    return overflow > 0 ? std::numeric_limits<int64_t>::max() : n;
  }

  // Calls see(id, count) for every id of a row; an array has each with count 1, as often as it stands there.
  template <class See>
  void each(py::handle item, int64_t row, See see) const {
    if (item.is_none()) return;
    if (is_mapping(item)) {
      for (const auto& [id, count] : items_of(item)) {
        const int64_t place = key(id, row), n = count_of(count, row);
        if (n > 0) see(place, n);
      }
      return;
    }
    const py::array array = array_or_tensor(name, item);
    const char kind = array.dtype().kind();
    if (kind != 'i' && kind != 'u' && (array.size() > 0 || !is_sequence_of_numbers(item)))
      type_error(name, "an integer dtype", std::string(py::str(array.dtype().attr("name"))) + " of shape " + shape_text(shape_of(array)) + rows.in_row(row));
    if (array.ndim() != 1) value_error(name, "ids of one dimension", "shape " + shape_text(shape_of(array)) + rows.in_row(row));
    if (array.size() == 0) return;
    const Integers all = integers_of(array);
    for (size_t i = 0; i < all.bits.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      if (!all.is_below(at, vocabulary)) index_error(name, id_text(vocabulary), all.text(at) + " at position " + std::to_string(i) + rows.in_row(row));
      see(static_cast<int64_t>(all.bits[i]), int64_t{1});
    }
  }
};

struct Seen {
  int64_t id;
  int64_t count;  // in `output`
  double bias;
  bool repeated;
};

double bias_of(py::handle object, int64_t id, const std::string& in_row) {
  const char* expected = "a finite number or -inf";
  double bias = 0;
  try {
    bias = real_option("logit_bias", object, expected);
  } catch (const py::type_error&) {
    type_error("logit_bias", expected, value_text(object) + " for id " + std::to_string(id) + in_row);
  }
  if (std::isnan(bias) || (std::isinf(bias) && bias > 0)) value_error("logit_bias", expected, number_text(bias) + " for id " + std::to_string(id) + in_row);
  return bias;
}

}  // namespace

void add_edits(const py::kwargs& given, const RowShape& rows, int64_t vocabulary, SampleOptions& options) {
  const auto argument = [&](const char* name) { return py::object(given[name]); };
  const auto finite = [](double x) { return std::isfinite(x); };
  const PerRow<double> repetition = reals_by_row("repetition_penalty", argument("repetition_penalty"), rows, "> 0 and finite",
                                                 [](double x) { return x > 0 && std::isfinite(x); });
  const PerRow<double> presence = reals_by_row("presence_penalty", argument("presence_penalty"), rows, "a finite number", finite);
  const PerRow<double> frequency = reals_by_row("frequency_penalty", argument("frequency_penalty"), rows, "a finite number", finite);
  const std::string id_words = "an array of ids or their counts";
  const std::vector<py::object> biases = items_by_row("logit_bias", argument("logit_bias"), rows, is_mapping, true, "a dictionary");
  const std::vector<py::object> history = items_by_row("history", argument("history"), rows, is_ids, false, id_words);
  const std::vector<py::object> output = items_by_row("output", argument("output"), rows, is_ids, false, id_words);
  const RowIds bias_ids{"logit_bias", rows, vocabulary}, history_ids{"history", rows, vocabulary}, output_ids{"output", rows, vocabulary};

  std::vector<Seen> seen;
  options.first_edit.assign(1, 0);
  for (int64_t row = 0; row < rows.count(); ++row) {
    const auto at = static_cast<size_t>(row);
    const double p = presence[row], f = frequency[row], r = repetition[row];
    if ((p != 0 || f != 0) && output[at].is_none())
      value_error(p != 0 ? "presence_penalty" : "frequency_penalty", "0 without output", number_text(p != 0 ? p : f) + rows.in_row(row),
                  "pass output, the ids that were generated");
    seen.clear();
    const py::object& bias = biases[at];
    if (!bias.is_none()) {
      if (!is_mapping(bias)) type_error("logit_bias", "a dictionary of ids", type_text(bias) + rows.in_row(row));
      for (const auto& [id, value] : items_of(bias)) {
        const int64_t key = bias_ids.key(id, row);
        seen.push_back({key, 0, bias_of(value, key, rows.in_row(row)), false});
      }
    }
    history_ids.each(history[at], row, [&](int64_t id, int64_t) {
      if (r != 1) seen.push_back({id, 0, 0, true});
    });
    output_ids.each(output[at], row, [&](int64_t id, int64_t count) {
      if (r != 1 || p != 0 || f != 0) seen.push_back({id, count, 0, true});
    });
    std::sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) { return a.id < b.id; });
    for (size_t i = 0; i < seen.size();) {
      Edit edit;
      int64_t count = 0;
      for (edit.id = seen[i].id; i < seen.size() && seen[i].id == edit.id; ++i) {
        count += seen[i].count;
        edit.bias += seen[i].bias;
        if (seen[i].repeated) edit.repetition = r;
      }
      if (count > 0) {
        edit.frequency = f * double(count);
        edit.presence = p;
      }
      options.edits.push_back(edit);
    }
    options.first_edit.push_back(static_cast<int64_t>(options.edits.size()));
  }
  if (options.edits.empty()) options.first_edit.clear();
}

}  // namespace lmhead
