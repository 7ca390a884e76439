#include "bindings/arguments/options.hpp"

#include <cmath>
#include <limits>

#include "core/parallel.hpp"

namespace lmhead {
namespace {

bool is_array_with_axes(py::handle object) {
  return py::isinstance<py::array>(object) && py::reinterpret_borrow<py::array>(object).ndim() > 0;
}

// A NumPy scalar or 0-d array that is neither integer nor floating: its __float__ would quietly make something of it.
bool is_unreal_numpy(py::handle object) {
  if (!PyObject_HasAttrString(object.ptr(), "dtype")) return false;
  const py::object dtype = object.attr("dtype");
  if (!py::isinstance<py::dtype>(dtype)) return false;
  const char kind = py::reinterpret_borrow<py::dtype>(dtype).kind();
  return kind != 'f' && kind != 'i' && kind != 'u' && py::str(dtype.attr("name")).cast<std::string>() != "bfloat16";
}

// What a number that is none raises when asked for its value; anything else (an interrupt, a bug of its own) goes on to the caller.
void clear_refusal() {
  if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_OverflowError))
    return PyErr_Clear();
  throw py::error_already_set();
}

}  // namespace

std::optional<bool> bool_of(py::handle object) {
  const bool of_python = PyBool_Check(object.ptr());
  if (!of_python && (PyLong_CheckExact(object.ptr()) || !py::isinstance(object, py::dtype("bool").attr("type")))) return {};
  return PyObject_IsTrue(object.ptr()) == 1;
}

double real_option(const char* name, py::handle object, const std::string& expected) {
  if (PyFloat_CheckExact(object.ptr())) return PyFloat_AS_DOUBLE(object.ptr());
  const bool number = PyFloat_Check(object.ptr()) || PyIndex_Check(object.ptr()) || PyObject_HasAttrString(object.ptr(), "__float__");
  if (!number || PyBool_Check(object.ptr()) || PyUnicode_Check(object.ptr()) || is_array_with_axes(object) || is_unreal_numpy(object))
    type_error(name, expected, value_text(object));
  const double x = PyFloat_AsDouble(object.ptr());
  if (x == -1 && PyErr_Occurred()) {
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
    clear_refusal();
    if (too_large) value_error(name, expected, "an integer beyond the range of float64");
    type_error(name, expected, value_text(object));
  }
  return x;
}

py::int_ any_integer_option(const char* name, py::handle object, const std::string& range) {
  if (PyLong_CheckExact(object.ptr())) return py::reinterpret_borrow<py::int_>(object);
  if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr()) || is_array_with_axes(object) || is_unreal_numpy(object))
    type_error(name, range, value_text(object));
  const py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!index) {
    clear_refusal();
    type_error(name, range, value_text(object));
  }
  return py::reinterpret_borrow<py::int_>(index);
}

int64_t integer_option(const char* name, py::handle object, int64_t least, int64_t most, const std::string& range) {
  const py::int_ index = any_integer_option(name, object, range);
  int overflow = 0;
  const long long x = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || x < least || x > most) value_error(name, range, value_text(index));
  return x;
}

int64_t k_option(py::handle k, int64_t vocabulary) {
  return integer_option("k", k, 0, vocabulary, "an integer from 0 to V = " + std::to_string(vocabulary));
}

int64_t integer_of_at_least(const char* name, py::handle object, int64_t least) {
  const std::string range = "an integer of at least " + std::to_string(least);
  const py::int_ index = any_integer_option(name, object, range);
  int overflow = 0;
  const long long x = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow > 0) return std::numeric_limits<int64_t>::max();
  if (overflow < 0 || x < least) value_error(name, range, value_text(index));
  return x;
}

double temperature_option(py::handle object) {
  const char* expected = "a finite number > 0";
  const double t = real_option("temperature", object, expected);
  if (!(t > 0) || std::isinf(t)) value_error("temperature", expected, number_text(t), t == 0 ? "the limit at 0 is the argmax" : "");
  return t;
}

double softcap_option(py::handle object) {
  if (object.is_none()) return 0;
  const char* expected = "None or a finite number > 0";
  const double c = real_option("softcap", object, expected);
  if (!(c > 0) || std::isinf(c)) value_error("softcap", expected, number_text(c), c == 0 ? "None applies no cap" : "");
  return c;
}

double scale_option(py::handle object) {
  if (object.is_none()) return 1;
  const char* expected = "None or a finite number";
  const double s = real_option("scale", object, expected);
  if (!std::isfinite(s)) value_error("scale", expected, number_text(s));
  return s;
}

double eps_option(py::handle object) {
  const char* expected = "a finite number >= 0";
  const double eps = real_option("eps", object, expected);
  if (!(eps >= 0) || std::isinf(eps)) value_error("eps", expected, number_text(eps));
  return eps;
}

int threads_option(py::handle object) {
  if (object.is_none()) return default_threads();
  static const std::string range = "None or an integer from 1 to " + std::to_string(kMaxThreads);
  return static_cast<int>(integer_option("threads", object, 1, kMaxThreads, range));
}

}  // namespace lmhead
