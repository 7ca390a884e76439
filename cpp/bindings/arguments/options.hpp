// Numbers as arguments: k, temperature, softcap, scale, eps, threads.
#pragma once

#include <optional>

#include "bindings/arguments/errors.hpp"

namespace lmhead {

// An integer from `least` to `most`; `range` says so in words. Booleans and floats are refused.
int64_t integer_option(const char* name, py::handle object, int64_t least, int64_t most, const std::string& range);

int64_t k_option(py::handle k, int64_t vocabulary);  // 0 .. V
// The same without an upper end: what is beyond 64 bits is the greatest of them.
int64_t integer_of_at_least(const char* name, py::handle object, int64_t least);
// A Python integer of any size, as it is.
py::int_ any_integer_option(const char* name, py::handle object, const std::string& range);

std::optional<bool> bool_of(py::handle object);  // Python's or NumPy's; nothing else is taken for one

// A float as it is, NaN and infinities too; `expected` says what it should be.
double real_option(const char* name, py::handle object, const std::string& expected);

double temperature_option(py::handle object);  // > 0, finite
double softcap_option(py::handle object);      // None: 0; else > 0, finite
double scale_option(py::handle object);        // None: 1; else finite
double eps_option(py::handle object);          // >= 0, finite
int threads_option(py::handle object);         // None: the default

}  // namespace lmhead
