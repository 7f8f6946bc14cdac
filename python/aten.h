// Graphs of torch.compile, for `ridge.torch`.
#pragma once

#include <nanobind/nanobind.h>

namespace ridge::python {

/// Adds AtenProgram, aten_refusals and the number of threads to the extension.
void add_aten_programs(nanobind::module_& package);

}  // namespace ridge::python
