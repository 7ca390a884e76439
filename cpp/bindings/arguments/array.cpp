#include "bindings/arguments/array.hpp"

#include <atomic>

namespace lmhead {
namespace {

constexpr int kFirstUserType = 256;  // NumPy's type numbers from here on are registered by others

bool is_plain_array(py::handle object) {
  return Py_TYPE(object.ptr()) == py::detail::npy_api::get().PyArray_Type_;
}

}  // namespace

// The name says which it is.
bool is_bfloat16(const py::dtype& dtype) {
  static std::atomic<int> known{-1};
  const int number = dtype.num();
  if (number < kFirstUserType) return false;
  if (number == known.load(std::memory_order_relaxed)) return true;
  if (std::string(py::str(dtype.attr("name"))) != "bfloat16" || dtype.itemsize() != 2) return false;
  known.store(number, std::memory_order_relaxed);
  return true;
}

bool is_real(const py::dtype& dtype) {
  const char kind = dtype.kind();
  return kind == 'f' || kind == 'i' || kind == 'u' || is_bfloat16(dtype);
}

// The attribute is looked up only on subclasses.
void refuse_masked(const char* name, py::handle array) {
  if (!is_plain_array(array) && PyObject_HasAttrString(array.ptr(), "mask") && PyObject_HasAttrString(array.ptr(), "filled"))
    type_error(name, "an array without a mask", type_text(array), "fill it first, for example with .filled(0)");
}

bool is_sequence_of_numbers(py::handle object) {
  return PySequence_Check(object.ptr()) && !PyUnicode_Check(object.ptr()) && !PyBytes_Check(object.ptr()) &&
         !PyObject_CheckBuffer(object.ptr()) && !PyObject_HasAttrString(object.ptr(), "__array__") &&
         !PyObject_HasAttrString(object.ptr(), "__array_interface__");
}

py::array array_as_is(const char* name, py::handle object) {
  if (py::isinstance<py::array>(object)) {
    refuse_masked(name, object);
    return py::reinterpret_borrow<py::array>(object);
  }
  try {
    return numpy("asarray")(object);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ValueError) && !error.matches(PyExc_TypeError)) throw;
    value_error(name, "a rectangular array or sequence of numbers", "a " + type_text(object) + " that NumPy refuses (" +
                std::string(py::str(error.value())) + ")");
  }
}

py::object numpy(const char* attribute) { return py::module_::import("numpy").attr(attribute); }

}  // namespace lmhead
