#include "python/aten.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "python/calls.h"
#include "ridge/api/aten_program.h"
#include "ridge/ridge.h"

namespace ridge::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

// Addresses are those of Tensor.data_ptr(); 0 is none.
using Addresses = std::vector<uintptr_t>;

template <typename Pointer>
std::vector<Pointer> pointers(const Addresses& addresses) {
  std::vector<Pointer> list;
  list.reserve(addresses.size());
  for (const uintptr_t each : addresses) list.push_back(reinterpret_cast<Pointer>(each));
  return list;
}

std::vector<std::pair<size_t, std::string>> refusals_of(std::string_view graph) {
  const Call call;
  const nb::gil_scoped_release release;
  std::vector<std::pair<size_t, std::string>> list;
  for (AtenRefusal& each : aten_refusals(graph))
    list.emplace_back(each.node, std::move(each.reason));
  return list;
}

void compile(AtenProgram* place, std::string_view graph, const Addresses& constants) {
  const Call call;
  std::vector<const void*> addresses = pointers<const void*>(constants);
  const nb::gil_scoped_release release;
  new (place) AtenProgram(graph, std::move(addresses));
}

void run(AtenProgram& program,
         const Addresses& inputs,
         const Addresses& outputs,
         uintptr_t workspace) {
  const Call call;
  const auto from = pointers<const void*>(inputs);
  const auto to = pointers<void*>(outputs);
  const nb::gil_scoped_release release;
  program.run(from, to, reinterpret_cast<void*>(workspace));
}

void refresh(AtenProgram& program, const Addresses& constants) {
  const Call call;
  std::vector<const void*> addresses = pointers<const void*>(constants);
  const nb::gil_scoped_release release;
  program.refresh(std::move(addresses));
}

void prepare_memory(uintptr_t address, size_t bytes) {
  const Call call;
  const nb::gil_scoped_release release;
  AtenProgram::make_resident(reinterpret_cast<void*>(address), bytes);
}

void use_threads(int count) {
  if (num_threads() == count) return;
  const Call call;
  const nb::gil_scoped_release release;
  set_num_threads(count);
}

}  // namespace

void add_aten_programs(nb::module_& package) {
  nb::class_<AtenProgram>(package, "AtenProgram", "A graph of torch.compile, for ridge.torch.")
      .def("__init__", compile, "graph"_a, "constants"_a)
      .def("run", run, "inputs"_a, "outputs"_a, "workspace"_a)
      .def_prop_ro("workspace_bytes", &AtenProgram::workspace_bytes)
      .def("is_stale", &AtenProgram::is_stale)
      .def("refresh", refresh, "constants"_a)
      .def("orders", &AtenProgram::orders)
      .def("plan", &AtenProgram::plan);
  package.def("aten_refusals", refusals_of, "graph"_a);
  package.def("make_resident", prepare_memory, "address"_a, "bytes"_a);
  package.def("use_threads", use_threads, "count"_a);
}

}  // namespace ridge::python
