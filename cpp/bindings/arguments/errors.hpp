// The form of every message: `<argument>: expected <condition>, got <fact>[; <what to do>]`.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lmhead {

namespace py = pybind11;

std::string message(const std::string& argument, const std::string& expected, const std::string& got, const std::string& advice);

[[noreturn]] void value_error(const std::string& argument, const std::string& expected, const std::string& got,
                              const std::string& advice = "");
[[noreturn]] void type_error(const std::string& argument, const std::string& expected, const std::string& got,
                             const std::string& advice = "");
[[noreturn]] void index_error(const std::string& argument, const std::string& expected, const std::string& got);

std::vector<int64_t> shape_of(const py::array& array);
int64_t n_elements(const std::vector<int64_t>& shape);

std::string shape_text(const std::vector<int64_t>& shape);  // "(5, 12)"
std::string position_text(int64_t flat, const std::vector<int64_t>& shape);  // "(0, 3)", of an element in C order
std::string type_text(py::handle object);                   // "str", "numpy.ndarray"
std::string number_text(double x);                          // as Python prints it
std::string value_text(py::handle object);                  // its repr; its type where that takes more than a line

}  // namespace lmhead
