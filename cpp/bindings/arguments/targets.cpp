#include "bindings/arguments/targets.hpp"

#include <algorithm>

#include "bindings/arguments/array.hpp"
#include "bindings/arguments/dlpack.hpp"
#include "bindings/arguments/integers.hpp"
#include "bindings/arguments/options.hpp"

namespace lmhead {
namespace {

// The argument before it is known what it is: an array, or a tensor of bfloat16, which NumPy has not.
struct Given {
  py::array array;
  Tensor tensor;
  std::vector<int64_t> shape;
  bool is_sequence = false;

  bool is_tensor() const { return !tensor.dtype.empty(); }
  bool is_integer() const { return !is_tensor() && (array.dtype().kind() == 'i' || array.dtype().kind() == 'u'); }
  bool is_floating() const { return is_tensor() || array.dtype().kind() == 'f' || is_bfloat16(array.dtype()); }
  std::string dtype_name() const { return is_tensor() ? tensor.dtype : std::string(py::str(array.dtype().attr("name"))); }
};

Given read(py::handle object) {
  Given given;
  if (!py::isinstance<py::array>(object) && speaks_dlpack(object)) {
    const Tensor tensor = tensor_from_dlpack("targets", object);
    given.shape = tensor.shape;
    if (tensor.dtype == "bfloat16") given.tensor = tensor;
    else given.array = array_of("targets", tensor);
    return given;
  }
  given.is_sequence = !py::isinstance<py::array>(object) && is_sequence_of_numbers(object);
  given.array = array_as_is("targets", object);
  given.shape = shape_of(given.array);
  return given;
}

int64_t shift_option(py::handle object, const std::vector<int64_t>& positions, const std::string& origin) {
  const std::optional<bool> by_one = bool_of(object);
  const int64_t shift = by_one ? *by_one : integer_of_at_least("shift", object, 0);
  if (shift > 0 && positions.empty())
    value_error("shift", "0 without an axis of positions in " + origin, std::to_string(shift));
  return shift;
}

// Probabilities, or false for ids; whatever is neither of the right kind and shape is refused.
bool is_soft(const Given& given, const Operand& rows, TargetKinds kinds) {
  const bool welcome = kinds == TargetKinds::ids_or_probabilities;
  const std::vector<int64_t> positions = leading(rows.shape);
  const bool soft = welcome && given.is_floating() && given.shape != positions;
  // NumPy takes a list of nothing for float64.
  const bool nothing = given.is_sequence && given.shape == positions && std::count(positions.begin(), positions.end(), 0) > 0;
  if (!soft && !given.is_integer() && !nothing)
    type_error("targets", "an integer dtype" + (welcome ? ", or probabilities of shape " + shape_text(rows.shape) : ""),
               given.dtype_name() + " of shape " + shape_text(given.shape));
  const std::vector<int64_t>& expected = soft ? rows.shape : positions;
  if (given.shape != expected)
    value_error("targets", "shape " + shape_text(expected) + " as in " + rows.name + " of shape " + shape_text(rows.shape),
                "shape " + shape_text(given.shape));
  return soft;
}

Operand probabilities(py::handle object, const Given& given, const Operand& rows) {
  if (given.is_tensor()) return operand_of("targets", given.tensor);
  if (given.is_sequence) return operand("targets", object, &rows);
  if (given.array.itemsize() > 8)
    type_error("targets", "dtype float32, float16, bfloat16 or float64", given.dtype_name(), "cast it with targets.astype(numpy.float32)");
  return operand("targets", given.array);
}

void check_goes_with(const Operand& soft, const Operand& rows) {
  const bool wide = rows.dtype == DType::float64;
  if ((soft.dtype == DType::float64) == wide) return;
  type_error("targets", std::string("dtype ") + (wide ? "float64" : "float32, float16 or bfloat16") + " as " + rows.name + " is " + dtype_text(rows.dtype),
             dtype_text(soft.dtype), std::string("cast it with targets.astype(numpy.") + (wide ? "float64)" : "float32)"));
}

}  // namespace

Targets targets_argument(py::handle object, const Operand& rows, int64_t vocabulary, TargetKinds kinds, const py::kwargs& options) {
  const std::vector<int64_t> positions = leading(rows.shape);
  const std::string origin = rows.name + " of shape " + shape_text(rows.shape);
  const py::int_ ignore_index = any_integer_option("ignore_index", py::object(options["ignore_index"]), "an integer of any size");
  const int64_t shift = shift_option(py::object(options["shift"]), positions, origin);

  Targets result;
  const Given given = read(object);
  const bool soft = is_soft(given, rows, kinds);
  if (soft) {
    result.soft = probabilities(object, given, rows);
    check_goes_with(result.soft, rows);
    result.soft_rows = std::make_unique<Rows>(result.soft.rows());
    result.counted.probabilities = result.soft_rows.get();
    result.memory.push_back(result.soft.memory());
  } else {
    result.memory.push_back(memory_of("targets", given.array));
  }
  const py::object token_weight = options.contains("token_weight") ? py::object(options["token_weight"]) : py::none();
  const SmallArray weight = small_array("token_weight", token_weight, positions, "shape " + shape_text(positions) + " as in " + origin, true);
  result.memory.push_back(weight.memory);
  const double* weights = weight.doubles();

  const Integers ids = soft ? Integers() : integers_of(given.array);
  const IntegerMatch ignored(ignore_index, ids.is_signed);
  const int64_t n_axis = positions.empty() ? 1 : positions.back();
  const int64_t n_pairs = std::max<int64_t>(n_axis - shift, 0);
  result.loss_shape = positions;
  if (!positions.empty()) result.loss_shape.back() = n_pairs;
  Counted& counted = result.counted;
  counted.n_places = 1;
  for (const int64_t n : result.loss_shape) counted.n_places *= n;
  for (int64_t place = 0; place < counted.n_places; ++place) {
    const int64_t row = place / n_pairs * n_axis + place % n_pairs, partner = row + shift;
    if (!soft) {
      if (ignored(ids.bits[static_cast<size_t>(partner)])) continue;
      if (!ids.is_below(partner, vocabulary))
        index_error("targets", "an id " + (vocabulary > 0 ? "from 0 to V - 1 = " + std::to_string(vocabulary - 1) : "of no token, as V = 0,") +
                                   " or ignore_index = " + value_text(ignore_index),
                    ids.text(partner) + " at position " + position_text(partner, positions));
    }
    const double w = weights ? weights[partner] : 1;
    if (w == 0) continue;
    counted.rows.push_back(row);
    counted.places.push_back(place);
    counted.token_weight.push_back(w);
    if (soft) counted.probability_rows.push_back(partner);
    else counted.ids.push_back(static_cast<int64_t>(ids.bits[static_cast<size_t>(partner)]));
  }
  return result;
}

}  // namespace lmhead
