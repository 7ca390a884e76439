#include "bindings/arguments/small_array.hpp"

#include "bindings/arguments/array.hpp"
#include "bindings/arguments/dlpack.hpp"

namespace lmhead {
namespace {

// Of any real dtype, as it lies.
py::array real_array(const char* name, py::handle object, Memory& memory) {
  py::array array;
  if (!py::isinstance<py::array>(object) && speaks_dlpack(object)) {
    const Tensor tensor = tensor_from_dlpack(name, object);
    memory = tensor.memory(name);
    array = array_of(name, tensor);
  } else {
    array = array_as_is(name, object);
    memory = memory_of(name, array);
    // NumPy takes an empty list for float64, whatever it was meant to be.
    if (array.size() > 0 && is_sequence_of_numbers(object) && !is_real(array.dtype()))
      type_error(name, "a sequence of real numbers", "a " + type_text(object) + " that NumPy reads as dtype " + std::string(py::str(array.dtype())));
  }
  if (!is_real(array.dtype()))
    type_error(name, "a real dtype", py::str(array.dtype().attr("name")), std::string("cast it with ") + name + ".astype(numpy.float32)");
  return array;
}

}  // namespace

SmallArray small_array(const char* name, py::handle object, const std::vector<int64_t>& shape, const std::string& expected, bool doubles) {
  SmallArray result;
  if (object.is_none()) return result;
  const py::array array = real_array(name, object, result.memory);
  if (shape_of(array) != shape) value_error(name, expected, "shape " + shape_text(shape_of(array)));
  result.given = true;
  result.values = numpy("require")(array, py::dtype(doubles ? "float64" : "float32"), "CA");
  return result;
}

SmallArray vector_argument(const char* name, py::handle object, const char* axis, int64_t length, const std::string& origin, bool doubles) {
  if (object.is_none()) return {};
  const std::string letter = axis;
  return small_array(name, object, {length}, "shape (" + letter + ",) with " + letter + " = " + std::to_string(length) + " as in " + origin,
                     doubles);
}

py::array kept_vector(const char* name, py::handle object, bool doubles) {
  if (object.is_none()) type_error(name, "an array of real numbers", "None");
  Memory memory;
  const py::array array = real_array(name, object, memory);
  if (array.ndim() != 1) value_error(name, "one axis", "shape " + shape_text(shape_of(array)));
  const py::array kept = numpy("array")(array, py::dtype(doubles ? "float64" : "float32"), py::arg("order") = "C");
  kept.attr("setflags")(py::arg("write") = false);
  return kept;
}

}  // namespace lmhead
