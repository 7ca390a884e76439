#include "bindings/arguments/ids.hpp"

#include "bindings/arguments/array.hpp"
#include "bindings/arguments/dlpack.hpp"

namespace lmhead {

IntegerArray integer_array(const char* name, py::handle object) {
  const bool tensor = !py::isinstance<py::array>(object) && speaks_dlpack(object);
  const py::array array = tensor ? array_of(name, tensor_from_dlpack(name, object)) : array_as_is(name, object);
  IntegerArray result{name, shape_of(array), {}};
  const char kind = array.dtype().kind();
  // NumPy takes a list of nothing for float64.
  const bool nothing = array.size() == 0 && !tensor && is_sequence_of_numbers(object);
  if (kind != 'i' && kind != 'u' && !nothing)
    type_error(name, "an integer dtype", std::string(py::str(array.dtype().attr("name"))) + " of shape " + shape_text(result.shape));
  if (!nothing) result.elements = integers_of(array);
  return result;
}

int64_t IntegerArray::id(int64_t i, int64_t vocabulary) const {
  if (!elements.is_below(i, vocabulary))
    index_error(name, vocabulary > 0 ? "an id from 0 to V - 1 = " + std::to_string(vocabulary - 1) : "no id, as V = 0",
                elements.text(i) + " at position " + position_text(i, shape));
  return static_cast<int64_t>(elements.bits[static_cast<size_t>(i)]);
}

Ids ids_argument(py::handle object, int64_t vocabulary) {
  const IntegerArray array = integer_array("ids", object);
  Ids ids{array.shape, {}};
  ids.values.reserve(array.elements.bits.size());
  for (size_t i = 0; i < array.elements.bits.size(); ++i) ids.values.push_back(array.id(static_cast<int64_t>(i), vocabulary));
  return ids;
}

}  // namespace lmhead
