#include "bindings/arguments/score_options.hpp"

#include <numeric>

#include "bindings/arguments/ids.hpp"
#include "bindings/arguments/options.hpp"

namespace lmhead {
namespace {

// Every row counts, and none has a target.
void take_all_rows(const Operand& rows, const py::kwargs& given, ScoreArguments& a) {
  any_integer_option("ignore_index", py::object(given["ignore_index"]), "an integer of any size");
  const py::object shift = given["shift"];
  const std::optional<bool> by_one = bool_of(shift);
  const int64_t columns = by_one ? *by_one : integer_of_at_least("shift", shift, 0);
  if (columns != 0) value_error("shift", "0 without targets", std::to_string(columns));
  a.shape = leading(rows.shape);
  Counted& counted = a.scored.counted;
  counted.n_places = n_elements(a.shape);
  counted.rows.resize(static_cast<size_t>(counted.n_places));
  std::iota(counted.rows.begin(), counted.rows.end(), int64_t(0));
  counted.places = counted.rows;
}

// Ids of places that nobody scores are not looked at.
void take_chosen(py::handle object, int64_t vocabulary, ScoreArguments& a) {
  const IntegerArray array = integer_array("chosen", object);
  std::vector<int64_t> per_place = a.shape;
  if (array.shape.empty()) value_error("chosen", "an axis of ids", "shape ()");
  a.n_chosen = array.shape.back();
  per_place.push_back(a.n_chosen);
  a.scored.chosen_for_all = array.shape.size() == 1;
  if (!a.scored.chosen_for_all && array.shape != per_place)
    value_error("chosen", "shape (m,), or " + shape_text(per_place) + " as the results are of shape " + shape_text(a.shape),
                "shape " + shape_text(array.shape));
  std::vector<int64_t>& chosen = a.scored.chosen;
  chosen.resize(static_cast<size_t>(n_elements(array.shape)));
  const auto take = [&](int64_t first) {
    for (int64_t i = first; i < first + a.n_chosen; ++i) {
      check_id("chosen", array, i, vocabulary);
      chosen[static_cast<size_t>(i)] = static_cast<int64_t>(array.all.bits[static_cast<size_t>(i)]);
    }
  };
  if (a.scored.chosen_for_all) return take(0);
  for (const int64_t place : a.scored.counted.places) take(place * a.n_chosen);
}

}  // namespace

ScoreArguments score_arguments(py::handle targets, const Operand& rows, int64_t vocabulary, const py::kwargs& given) {
  ScoreArguments a;
  a.top_n = integer_option("top_n", py::object(given["top_n"]), 0, vocabulary, "an integer from 0 to V = " + std::to_string(vocabulary));
  a.has_targets = !targets.is_none();
  if (a.has_targets) {
    Targets found = targets_argument(targets, rows, vocabulary, TargetKinds::ids, given);
    a.shape = std::move(found.loss_shape);
    a.scored.counted = std::move(found.counted);
  } else {
    take_all_rows(rows, given, a);
  }
  const py::object chosen = given["chosen"];
  a.has_chosen = !chosen.is_none();
  if (a.has_chosen) take_chosen(chosen, vocabulary, a);
  return a;
}

}  // namespace lmhead
