#include "bindings/arguments/allowed_ids.hpp"

#include <pybind11/stl.h>

#include "bindings/arguments/array.hpp"
#include "bindings/arguments/dlpack.hpp"
#include "bindings/arguments/ids.hpp"

namespace lmhead {
namespace {

// A vocabulary of more ids than this has a wrong id in it, and its bits would fill the memory.
constexpr int64_t kMostIds = int64_t{1} << 31;

// What the sets are for: rows of an operand, ids that another one has.
struct Scope {
  const Operand& rows;
  std::vector<int64_t> shape;  // of the rows
  int64_t n_ids;
  std::string origin;          // of n_ids, in words

  int64_t n_rows() const { return n_elements(shape); }
  int64_t n_words() const { return ceil_div(n_ids, kWordIds); }
  std::string rows_text() const { return rows.name + " of shape " + shape_text(rows.shape); }
};

// Sets of bits on their way to an Allowed: [n_sets][n_words].
struct Sets {
  std::vector<uint32_t> words;
  bool shared;

  Sets(const Scope& scope, bool one_for_all, uint32_t word)
      : words(static_cast<size_t>((one_for_all ? 1 : scope.n_rows()) * scope.n_words()), word), shared(one_for_all) {}
};

// The first n_words of every row.
void copy_words(const py::array& mask, int64_t n_words, std::vector<uint32_t>& words) {
  const py::ssize_t last = mask.ndim() - 1;
  const ptrdiff_t stride = mask.strides(last);
  const bool swapped = mask.dtype().byteorder() == '>';
  std::vector<int64_t> index(static_cast<size_t>(last));
  const auto* row = static_cast<const char*>(mask.data());
  for (size_t at = 0; at < words.size(); at += static_cast<size_t>(n_words)) {
    for (int64_t w = 0; w < n_words; ++w) {
      uint32_t word;
      std::memcpy(&word, row + w * stride, sizeof(word));
      words[at + static_cast<size_t>(w)] = swapped ? __builtin_bswap32(word) : word;
    }
    for (py::ssize_t axis = last; axis-- > 0;) {
      row += mask.strides(axis);
      if (++index[static_cast<size_t>(axis)] < mask.shape(axis)) break;
      row -= mask.shape(axis) * mask.strides(axis);
      index[static_cast<size_t>(axis)] = 0;
    }
  }
}

// As NumPy broadcasts: absent axes, and axes of 1, stand for every row along them.
bool broadcasts(const std::vector<int64_t>& shape, const std::vector<int64_t>& to) {
  if (shape.size() > to.size()) return false;
  for (size_t i = 1; i <= shape.size(); ++i)
    if (shape[shape.size() - i] != 1 && shape[shape.size() - i] != to[to.size() - i]) return false;
  return true;
}

// Words that a Python sequence holds, as signed or unsigned numbers; what is no integer is left to those who refuse it.
py::array words_of_sequence(py::array numbers) {
  const char kind = numbers.dtype().kind();
  if (kind != 'i' && kind != 'u') return numbers;
  const py::object beyond = numpy("logical_or")(numpy("less")(numbers, -(int64_t{1} << 31)), numpy("greater_equal")(numbers, int64_t{1} << 32));
  const py::object found = numbers.attr("ravel")()[numpy("flatnonzero")(beyond)];
  if (py::len(found) > 0) value_error("mask", "words of 32 bits, from -2^31 to 2^32 - 1", std::string(py::str(found[py::int_(0)])));
  return numbers.attr("astype")("uint32").cast<py::array>();
}

Sets sets_of_mask(py::handle object, const Scope& scope, std::vector<Memory>& memory) {
  py::array mask = array_or_tensor("mask", object);
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) mask = words_of_sequence(mask);
  memory.push_back(memory_of("mask", mask));
  const std::vector<int64_t> shape = shape_of(mask);
  const char kind = mask.dtype().kind();
  if ((kind != 'i' && kind != 'u') || mask.itemsize() != 4)
    type_error("mask", "dtype int32 or uint32, a bit for each id with the lowest bit first",
               std::string(py::str(mask.dtype().attr("name"))) + " of shape " + shape_text(shape),
               kind == 'b' ? "numpy.flatnonzero turns a row of booleans into allowed_ids" : "");
  const std::string words_text = "ceil(V / 32) = " + std::to_string(scope.n_words()) + " words for the V = " + std::to_string(scope.n_ids) + " of " + scope.origin;
  if (shape.empty() || shape.back() < scope.n_words()) value_error("mask", "a last axis of at least " + words_text, "shape " + shape_text(shape));
  const std::vector<int64_t> rows = leading(shape);
  if (!broadcasts(rows, scope.shape))
    value_error("mask", "one row, or rows of shape " + shape_text(scope.shape) + " as in " + scope.rows_text(), "shape " + shape_text(shape));
  Sets sets(scope, n_elements(rows) == 1, 0);
  if (sets.words.empty()) return sets;
  std::vector<int64_t> whole = sets.shared ? rows : scope.shape;
  whole.push_back(shape.back());
  const py::object every_row = numpy("broadcast_to")(mask, whole);
  copy_words(py::reinterpret_borrow<py::array>(every_row), scope.n_words(), sets.words);
  return sets;
}

// Bits of one list of ids.
void set_bits(const std::string& name, py::handle object, const Scope& scope, uint32_t* words, std::vector<Memory>& memory) {
  const IntegerArray ids = integer_array(name.c_str(), object);
  memory.push_back(ids.memory);
  if (ids.shape.size() != 1)
    value_error(name, "one axis", "shape " + shape_text(ids.shape), ids.shape.size() > 1 ? "a list of its rows gives every row its own ids" : "");
  for (int64_t i = 0; i < ids.shape[0]; ++i) {
    check_id(name, ids, i, scope.n_ids);
    const uint64_t id = ids.all.bits[static_cast<size_t>(i)];
    words[id / kWordIds] |= uint32_t{1} << id % kWordIds;
  }
}

// One row's own, in a list with an item for each row; None allows everything.
bool is_list_of_ids(py::handle item) {
  return item.is_none() || py::isinstance<py::array>(item) || is_sequence_of_numbers(item) || speaks_dlpack(item);
}

Sets sets_of_ids(py::handle object, const Scope& scope, std::vector<Memory>& memory) {
  bool of_each_row = false;
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object))
    for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) of_each_row |= is_list_of_ids(item);
  Sets sets(scope, !of_each_row, 0);
  if (!of_each_row) {
    set_bits("allowed_ids", object, scope, sets.words.data(), memory);
    return sets;
  }
  const auto lists = py::reinterpret_borrow<py::sequence>(object);
  if (static_cast<int64_t>(lists.size()) != scope.n_rows())
    value_error("allowed_ids", "a list of " + std::to_string(scope.n_rows()) + " arrays, one for each row of " + scope.rows_text(), "one of " + std::to_string(lists.size()));
  for (size_t row = 0; row < lists.size(); ++row) {
    const py::object list = lists[row];
    uint32_t* words = sets.words.data() + static_cast<int64_t>(row) * scope.n_words();
    if (list.is_none()) std::fill(words, words + scope.n_words(), ~uint32_t{0});
    else set_bits("allowed_ids[" + std::to_string(row) + "]", list, scope, words, memory);
  }
  return sets;
}

// Ascending full ids of a weight's rows.
std::vector<int64_t> vocabulary_ids(py::handle object, const Operand& weight, std::vector<Memory>& memory) {
  const IntegerArray ids = integer_array("vocab_ids", object);
  memory.push_back(ids.memory);
  const int64_t n = weight.shape[0];
  if (ids.shape != std::vector<int64_t>{n})
    value_error("vocab_ids", "shape (V,) with V = " + std::to_string(n) + " as in weight of shape " + shape_text(weight.shape), "shape " + shape_text(ids.shape));
  std::vector<int64_t> found;
  found.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const auto at = [&] { return " at position " + position_text(i, ids.shape); };
    if (!ids.all.is_below(i, kMostIds)) value_error("vocab_ids", "ids from 0 to " + std::to_string(kMostIds - 1), ids.all.text(i) + at());
    const auto id = static_cast<int64_t>(ids.all.bits[static_cast<size_t>(i)]);
    if (i > 0 && id <= found.back()) value_error("vocab_ids", "ids in strictly ascending order", std::to_string(id) + " after " + std::to_string(found.back()) + at());
    found.push_back(id);
  }
  return found;
}

Sets sets_argument(py::handle mask, py::handle allowed_ids, const Scope& scope, std::vector<Memory>& memory) {
  if (!mask.is_none() && !allowed_ids.is_none()) value_error("allowed_ids", "None beside a mask", "both", "give one of them");
  if (!mask.is_none()) return sets_of_mask(mask, scope, memory);
  if (!allowed_ids.is_none()) return sets_of_ids(allowed_ids, scope, memory);
  return {scope, true, ~uint32_t{0}};
}

}  // namespace

AllowedIds allowed_argument(py::handle mask, py::handle allowed_ids, py::handle vocab_ids, const Head& head) {
  AllowedIds result;
  result.vocabulary = head.vocabulary();
  const bool pruned = !vocab_ids.is_none();
  if (!pruned && mask.is_none() && allowed_ids.is_none()) return result;
  std::vector<int64_t> ids;
  if (pruned) {
    ids = vocabulary_ids(vocab_ids, head.weight, result.memory);
    result.vocabulary = ids.empty() ? 0 : ids.back() + 1;
  }
  const std::string origin = pruned ? "vocab_ids, which end at " + std::to_string(result.vocabulary - 1) : "weight of shape " + shape_text(head.weight.shape);
  Sets sets = sets_argument(mask, allowed_ids, {head.hidden, leading(head.hidden.shape), result.vocabulary, origin}, result.memory);
  result.allowed = pruned ? Allowed(result.vocabulary, std::move(sets.words), sets.shared, ids) : Allowed(result.vocabulary, std::move(sets.words), sets.shared);
  return result;
}

AllowedIds allowed_argument(py::handle mask, py::handle allowed_ids, const Operand& logits) {
  AllowedIds result;
  result.vocabulary = logits.shape.back();
  if (mask.is_none() && allowed_ids.is_none()) return result;
  const std::string origin = logits.name + " of shape " + shape_text(logits.shape);
  Sets sets = sets_argument(mask, allowed_ids, {logits, leading(logits.shape), result.vocabulary, origin}, result.memory);
  result.allowed = Allowed(result.vocabulary, std::move(sets.words), sets.shared);
  return result;
}

}  // namespace lmhead
