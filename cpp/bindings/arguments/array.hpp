// NumPy arrays before anything is known of their elements: kinds, masks, what a Python object becomes.
#pragma once

#include "bindings/arguments/errors.hpp"

namespace lmhead {

// NumPy registers bfloat16 of ml_dtypes under a number of its own each process.
bool is_bfloat16(const py::dtype& dtype);
// Integers and floating numbers of any width.
bool is_real(const py::dtype& dtype);

// A masked array's mask would be lost.
void refuse_masked(const char* name, py::handle array);

// Neither an array nor text or bytes, nor an object that describes its memory.
bool is_sequence_of_numbers(py::handle object);

// What NumPy makes of the object, in a dtype of NumPy's choosing.
py::array array_as_is(const char* name, py::handle object);

py::object numpy(const char* attribute);

}  // namespace lmhead
