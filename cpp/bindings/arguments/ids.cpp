#include "bindings/arguments/ids.hpp"

#include "bindings/arguments/array.hpp"
#include "bindings/arguments/dlpack.hpp"
#include "bindings/arguments/integers.hpp"

namespace lmhead {

Ids ids_argument(py::handle object, int64_t vocabulary) {
  const bool tensor = !py::isinstance<py::array>(object) && speaks_dlpack(object);
  const py::array array = tensor ? array_of("ids", tensor_from_dlpack("ids", object)) : array_as_is("ids", object);
  Ids ids;
  ids.shape = shape_of(array);
  const char kind = array.dtype().kind();
  // NumPy takes a list of nothing for float64.
  const bool nothing = array.size() == 0 && !tensor && is_sequence_of_numbers(object);
  if (kind != 'i' && kind != 'u' && !nothing)
    type_error("ids", "an integer dtype", std::string(py::str(array.dtype().attr("name"))) + " of shape " + shape_text(ids.shape));
  if (nothing) return ids;
  const Integers all = integers_of(array);
  ids.values.reserve(all.bits.size());
  for (size_t i = 0; i < all.bits.size(); ++i) {
    if (!all.is_below(static_cast<int64_t>(i), vocabulary))
      index_error("ids", vocabulary > 0 ? "an id from 0 to V - 1 = " + std::to_string(vocabulary - 1) : "no id, as V = 0",
                  all.text(static_cast<int64_t>(i)) + " at position " + position_text(static_cast<int64_t>(i), ids.shape));
    ids.values.push_back(static_cast<int64_t>(all.bits[i]));
  }
  return ids;
}

}  // namespace lmhead
