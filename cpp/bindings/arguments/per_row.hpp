// Parameters that are one number for all rows, or one for each: numbers, integers of 64 bits, lists of ids.
// It knows shapes and how a row is named in a message; it refuses to know what the numbers are for.
#pragma once

#include <functional>
#include <optional>

#include "bindings/arguments/errors.hpp"

namespace lmhead {

// The rows of a call: the leading axes of its operand.
struct RowShape {
  std::vector<int64_t> shape;
  std::string origin;  // "hidden of shape (5, 12)"

  int64_t count() const;
  // " in row 2", by all its indices where there are several axes; nothing where there is no axis.
  std::string in_row(int64_t row) const;
};

// Numbers by row, or a single one.
template <class Number>
struct PerRow {
  std::vector<Number> values;
  bool single = true;

  Number operator[](int64_t row) const { return values[single ? 0 : static_cast<size_t>(row)]; }
};

// Real numbers that `holds`; `expected` says what they should be.
PerRow<double> reals_by_row(const char* name, py::handle object, const RowShape& rows, const std::string& expected, bool (*holds)(double));
// Integers from `least` to 2^63 - 1; what is greater counts as that.
PerRow<int64_t> integers_by_row(const char* name, py::handle object, const RowShape& rows, int64_t least);
// Integers from 0 to 2^64 - 1, exactly.
PerRow<uint64_t> words_by_row(const char* name, py::handle object, const RowShape& rows);

// One object a row of what comes as None, as one `item`, or as a sequence of items; `words` says which. One item is for all rows where `shared`,
// and otherwise only where there is one row.
std::vector<py::object> items_by_row(const char* name, py::handle object, const RowShape& rows, bool (*is_item)(py::handle), bool shared,
                                     const std::string& words);

}  // namespace lmhead
