// Arrays of Python as those of the engine, and back.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <string_view>

#include "ridge/ridge.h"

namespace ridge::python {

/// Anything that offers its elements by DLPack or the buffer protocol.
using PythonArray = nanobind::ndarray<nanobind::ro>;

/// NumPy's name of a dtype: "float32".
std::string_view numpy_name(DType dtype);

/// The elements of `value`, an array in row-major order on the host, which stay where they are as
/// long as `keeper` has it. UserError, which names the input, for anything else.
ArrayView view_of(const DataSpec& input, nanobind::handle value, PythonArray& keeper);

/// A NumPy array over the memory of `array`. There is no bf16 in NumPy: it comes as f32, which has
/// all of its values.
nanobind::object numpy_array(const Array& array);

}  // namespace ridge::python
