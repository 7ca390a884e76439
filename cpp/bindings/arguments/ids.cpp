#include "bindings/arguments/ids.hpp"

#include "bindings/arguments/array.hpp"
#include "bindings/arguments/dlpack.hpp"

namespace lmhead {

IntegerArray integer_array(const char* name, py::handle object) {
  const bool tensor = !py::isinstance<py::array>(object) && speaks_dlpack(object);
  const py::array array = array_or_tensor(name, object);
  IntegerArray result{shape_of(array), {}, memory_of(name, array)};
  const char kind = array.dtype().kind();
  // NumPy takes a list of nothing for float64.
  const bool nothing = array.size() == 0 && !tensor && is_sequence_of_numbers(object);
  if (kind != 'i' && kind != 'u' && !nothing)
    type_error(name, "an integer dtype", std::string(py::str(array.dtype().attr("name"))) + " of shape " + shape_text(result.shape));
  if (!nothing) result.all = integers_of(array);
  return result;
}

std::string id_text(int64_t vocabulary) {
  return vocabulary > 0 ? "an id from 0 to V - 1 = " + std::to_string(vocabulary - 1) : "no id, as V = 0";
}

void check_id(const std::string& name, const IntegerArray& ids, int64_t i, int64_t vocabulary) {
  if (ids.all.is_below(i, vocabulary)) return;
  index_error(name, id_text(vocabulary), ids.all.text(i) + " at position " + position_text(i, ids.shape));
}

Ids ids_argument(py::handle object, int64_t vocabulary) {
  const IntegerArray given = integer_array("ids", object);
  Ids ids{given.shape, {}};
  ids.values.reserve(given.all.bits.size());
  for (size_t i = 0; i < given.all.bits.size(); ++i) {
    check_id("ids", given, static_cast<int64_t>(i), vocabulary);
    ids.values.push_back(static_cast<int64_t>(given.all.bits[i]));
  }
  return ids;
}

}  // namespace lmhead
