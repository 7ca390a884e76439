#include "bindings/arguments/errors.hpp"

namespace lmhead {

std::string message(const std::string& argument, const std::string& expected, const std::string& got, const std::string& advice) {
  return argument + ": expected " + expected + ", got " + got + (advice.empty() ? "" : "; " + advice);
}

void value_error(const std::string& argument, const std::string& expected, const std::string& got, const std::string& advice) {
  throw py::value_error(message(argument, expected, got, advice));
}

void type_error(const std::string& argument, const std::string& expected, const std::string& got, const std::string& advice) {
  throw py::type_error(message(argument, expected, got, advice));
}

void index_error(const std::string& argument, const std::string& expected, const std::string& got) {
  throw py::index_error(message(argument, expected, got, ""));
}

std::vector<int64_t> shape_of(const py::array& array) { return {array.shape(), array.shape() + array.ndim()}; }

int64_t n_elements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t axis : shape) n *= axis;
  return n;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string position_text(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; flat /= shape[axis]) index[axis] = flat % shape[axis];
  return shape_text(index);
}

std::string type_text(py::handle object) {
  const py::handle type = py::type::handle_of(object);
  const std::string module = py::str(type.attr("__module__")), name = py::str(type.attr("__qualname__"));
  return module == "builtins" ? name : module + "." + name;
}

std::string number_text(double x) { return py::repr(py::float_(x)); }

// Python refuses to print integers of thousands of digits.
std::string value_text(py::handle object) {
  const py::object text = py::reinterpret_steal<py::object>(PyObject_Repr(object.ptr()));
  if (!text) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw py::error_already_set();
    PyErr_Clear();
    return PyLong_Check(object.ptr()) ? "an integer too large to print" : type_text(object);
  }
  const auto line = text.cast<std::string>();
  return line.find('\n') == std::string::npos ? line : type_text(object);
}

}  // namespace lmhead
