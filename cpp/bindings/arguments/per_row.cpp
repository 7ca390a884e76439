#include "bindings/arguments/per_row.hpp"

#include <limits>

#include "bindings/arguments/array.hpp"
#include "bindings/arguments/dlpack.hpp"
#include "bindings/arguments/integers.hpp"
#include "bindings/arguments/options.hpp"
#include "bindings/arguments/small_array.hpp"

namespace lmhead {
namespace {

bool has_axes(py::handle object) {
  if (py::isinstance<py::array>(object)) return py::reinterpret_borrow<py::array>(object).ndim() > 0;
  if (speaks_dlpack(object)) return py::len(object.attr("shape")) > 0;
  return is_sequence_of_numbers(object);
}

constexpr const char* kReals = "a real number or one for each row";

std::string expected_shape(const RowShape& rows) {
  return "a number or shape " + shape_text(rows.shape) + ", one for each row of " + rows.origin;
}

// An integer of any size, as far as 64 bits hold it.
struct Whole {
  uint64_t bits = 0;
  bool negative = false, beyond = false;
  std::string digits;  // of what is beyond

  std::string text() const {
    if (beyond) return digits;
    return negative ? std::to_string(static_cast<int64_t>(bits)) : std::to_string(bits);
  }
};

Whole whole_of(const py::int_& index) {
  int overflow = 0;
  const long long x = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow == 0) return {static_cast<uint64_t>(x), x < 0, false, {}};
  if (overflow < 0) return {0, true, true, value_text(index)};
  const unsigned long long u = PyLong_AsUnsignedLongLong(index.ptr());
  if (!PyErr_Occurred()) return {u, false, false, {}};
  PyErr_Clear();
  return {0, false, true, value_text(index)};
}

// Nested sequences: NumPy makes float64 of integers that no dtype of it holds together.
void collect(const char* name, py::handle object, const RowShape& rows, size_t axis, const std::string& expected, std::vector<Whole>& to) {
  if (axis == rows.shape.size()) return to.push_back(whole_of(any_integer_option(name, object, expected)));
  if (!is_sequence_of_numbers(object) || py::len(object) != static_cast<size_t>(rows.shape[axis]))
    value_error(name, expected_shape(rows), "a " + type_text(object) + " of another shape");
  // Items are held while they are looked at: a sequence may make them as it is asked.
  for (int64_t i = 0; i < rows.shape[axis]; ++i) collect(name, py::object(object[py::int_(i)]), rows, axis + 1, expected, to);
}

PerRow<Whole> wholes_by_row(const char* name, py::handle object, const RowShape& rows, const std::string& expected) {
  if (!has_axes(object)) return {{whole_of(any_integer_option(name, object, expected))}, true};
  PerRow<Whole> result{{}, false};
  const py::array array = array_or_tensor(name, object);
  const char kind = array.dtype().kind();
  const bool sequence = !py::isinstance<py::array>(object) && is_sequence_of_numbers(object);
  if (kind != 'i' && kind != 'u') {
    if (!sequence) type_error(name, expected + ", or one for each row", "dtype " + std::string(py::str(array.dtype().attr("name"))));
    collect(name, object, rows, 0, expected, result.values);
    return result;
  }
  if (shape_of(array) != rows.shape) value_error(name, expected_shape(rows), "shape " + shape_text(shape_of(array)));
  const Integers all = integers_of(array);
  for (const uint64_t bits : all.bits) result.values.push_back({bits, all.is_signed && static_cast<int64_t>(bits) < 0, false, {}});
  return result;
}

std::string place_of(const RowShape& rows, bool single, size_t row) { return single ? "" : rows.in_row(static_cast<int64_t>(row)); }

}  // namespace

int64_t RowShape::count() const { return n_elements(shape); }

std::string RowShape::in_row(int64_t row) const {
  if (shape.empty()) return "";
  return " in row " + (shape.size() == 1 ? std::to_string(row) : position_text(row, shape));
}

PerRow<double> reals_by_row(const char* name, py::handle object, const RowShape& rows, const std::string& expected, bool (*holds)(double)) {
  PerRow<double> result;
  if (has_axes(object)) {
    if (py::isinstance<py::array>(object) && !is_real(py::reinterpret_borrow<py::array>(object).dtype()))
      type_error(name, kReals, "dtype " + std::string(py::str(object.attr("dtype").attr("name"))));
    const SmallArray array = small_array(name, object, rows.shape, expected_shape(rows), true);
    result.values.assign(array.doubles(), array.doubles() + rows.count());
    result.single = false;
  } else {
    try {
      result.values.push_back(real_option(name, object, kReals));
    } catch (const py::value_error&) {
      value_error(name, expected, "an integer beyond the range of float64");
    }
  }
  for (size_t i = 0; i < result.values.size(); ++i)
    if (!holds(result.values[i])) value_error(name, expected, number_text(result.values[i]) + place_of(rows, result.single, i));
  return result;
}

PerRow<int64_t> integers_by_row(const char* name, py::handle object, const RowShape& rows, int64_t least) {
  const std::string expected = "an integer >= " + std::to_string(least);
  const PerRow<Whole> wholes = wholes_by_row(name, object, rows, expected);
  PerRow<int64_t> result{{}, wholes.single};
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < wholes.values.size(); ++i) {
    const Whole& x = wholes.values[i];
    const int64_t value = x.negative ? static_cast<int64_t>(x.bits) : x.beyond || x.bits > uint64_t(most) ? most : static_cast<int64_t>(x.bits);
    if ((x.negative && x.beyond) || value < least) value_error(name, expected, x.text() + place_of(rows, wholes.single, i));
    result.values.push_back(value);
  }
  return result;
}

PerRow<uint64_t> words_by_row(const char* name, py::handle object, const RowShape& rows) {
  const std::string expected = "an integer from 0 to 2^64 - 1";
  const PerRow<Whole> wholes = wholes_by_row(name, object, rows, expected);
  PerRow<uint64_t> result{{}, wholes.single};
  for (size_t i = 0; i < wholes.values.size(); ++i) {
    const Whole& x = wholes.values[i];
    if (x.negative || x.beyond) value_error(name, expected, x.text() + place_of(rows, wholes.single, i));
    result.values.push_back(x.bits);
  }
  return result;
}

std::vector<py::object> items_by_row(const char* name, py::handle object, const RowShape& rows, bool (*is_item)(py::handle), bool shared,
                                     const std::string& words) {
  const auto n = static_cast<size_t>(rows.count());
  if (object.is_none()) return std::vector<py::object>(n, py::none());
  if (is_item(object) && (shared || n == 1)) return std::vector<py::object>(n, py::reinterpret_borrow<py::object>(object));
  const bool listed = PySequence_Check(object.ptr()) && !PyUnicode_Check(object.ptr()) && !PyBytes_Check(object.ptr());
  if (!listed && !is_item(object)) type_error(name, words + ", or a list of them for the rows", type_text(object));
  const std::string expected = "a list of " + std::to_string(n) + ", one for each row of " + rows.origin;
  // A list of nothing is the list for no rows, and also ids of one row.
  if (is_item(object) && !(listed && n == 0 && py::len(object) == 0)) value_error(name, expected, type_text(object) + " for all");
  const auto sequence = py::reinterpret_borrow<py::sequence>(object);
  if (py::len(sequence) != n) value_error(name, expected, std::to_string(py::len(sequence)));
  std::vector<py::object> items;
  for (size_t i = 0; i < n; ++i) items.push_back(py::object(sequence[i]));
  return items;
}

}  // namespace lmhead
