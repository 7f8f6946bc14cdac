#include "python/aten.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/calls.h"
#include "python/torch_tensors.h"
#include "ridge/api/aten_program.h"
#include "ridge/api/aten_random.h"
#include "ridge/ridge.h"

namespace ridge::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

// Addresses are those of Tensor.data_ptr(); 0 is none.
using Addresses = std::vector<uintptr_t>;

std::vector<const void*> pointers(const Addresses& addresses) {
  std::vector<const void*> list;
  list.reserve(addresses.size());
  for (const uintptr_t each : addresses) list.push_back(reinterpret_cast<const void*>(each));
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

// The state of a generator and the elements lie where Tensor.data_ptr() says. Draws are no runs of
// a program: they are short, and so keep the lock of the interpreter.
bool draw(uintptr_t state, size_t state_bytes, double p, uintptr_t elements, size_t count) {
  return draw_bernoulli({reinterpret_cast<std::byte*>(state), state_bytes},
                        p,
                        {reinterpret_cast<uint8_t*>(elements), count});
}

// Number, shape and strides of an input that a run reads.
using Input = std::tuple<size_t, std::vector<int64_t>, std::vector<int64_t>>;

// An output has its shape, strides and dtype, and memory of its own; or it lies in a piece of
// memory from an element on; or over an input.
struct Output {
  std::vector<int64_t> shape, strides;
  int32_t dtype = 0;
  std::optional<size_t> piece, over;
  int64_t offset = 0;
};

void make_output(Output* place,
                 std::vector<int64_t> shape,
                 std::vector<int64_t> strides,
                 const std::string& dtype,
                 std::optional<size_t> piece,
                 int64_t offset,
                 std::optional<size_t> over) {
  new (place) Output{std::move(shape), std::move(strides), torch_dtype(dtype), piece, over, offset};
}

// A program, and how tensors of Python are bound to it.
struct BoundProgram {
  AtenProgram program;
  std::vector<Input> inputs = {};
  std::vector<Output> outputs = {};
  size_t taken = 0;        ///< The number of tensors that a run takes.
  nb::object placed = {};  ///< Called with a tensor and strides, it copies.
};

void compile(BoundProgram* place, std::string_view graph, const Addresses& constants) {
  const Call call;
  std::vector<const void*> addresses = pointers(constants);
  const nb::gil_scoped_release release;
  new (place) BoundProgram{AtenProgram(graph, std::move(addresses))};
}

void bind(BoundProgram& bound,
          size_t taken,
          std::vector<Input> inputs,
          std::vector<Output> outputs,
          nb::object placed) {
  bound.taken = taken;
  bound.inputs = std::move(inputs);
  bound.outputs = std::move(outputs);
  bound.placed = std::move(placed);
}

// The tensors of a run. Those that lie otherwise than the graph has them are copied first; where an
// output goes over such a copy, it is copied back.
class Run {
 public:
  Run(const BoundProgram& bound, const nb::tuple& tensors, const nb::list& pieces)
      : bound_(bound), tensors_(tensors), from_(bound.taken) {
    if (tensors.size() != bound.taken)
      throw UserError("ridge.torch: " + std::to_string(tensors.size()) + " tensors; expected " +
                      std::to_string(bound.taken));
    nb::list all;
    for (const Input& input : bound.inputs) all.append(tensors[std::get<0>(input)]);
    for (const nb::handle piece : pieces) all.append(piece);
    handles_ = to_torch(all);
    for (size_t i = 0; i < bound.inputs.size(); ++i) take_input(i);
    for (const Output& output : bound.outputs) make(output);
  }

  void run(AtenProgram& program, void* workspace) {
    const nb::gil_scoped_release release;
    program.run(from_, to_, workspace);
  }

  nb::list results() {
    const nb::list made = to_python(std::move(made_));
    nb::list all;
    size_t next = 0;
    for (const Output& output : bound_.outputs)
      all.append(output.over ? nb::object(written(*output.over)) : nb::object(made[next++]));
    return all;
  }

 private:
  void take_input(size_t i) {
    const auto& [number, shape, strides] = bound_.inputs[i];
    if (!handles_[i].has_strides(strides, shape)) {
      nb::list copy;
      copy.append(bound_.placed(tensors_[number], strides));
      handles_[i] = std::move(to_torch(copy)[0]);
      copies_.emplace(number, copy[0]);
    }
    from_[number] = handles_[i].data();
  }

  void make(const Output& output) {
    if (output.over) return to_.push_back(const_cast<void*>(from_[*output.over]));
    if (output.piece)
      made_.push_back(handles_[bound_.inputs.size() + *output.piece].reinterpreted(
          output.shape, output.strides, output.offset));
    else
      made_.push_back(TorchTensor::empty(output.shape, output.strides, output.dtype));
    to_.push_back(made_.back().data());
  }

  nb::object written(size_t number) {
    const auto copy = copies_.find(number);
    if (copy == copies_.end()) return tensors_[number];
    return tensors_[number].attr("copy_")(copy->second);
  }

  const BoundProgram& bound_;
  const nb::tuple& tensors_;
  std::vector<TorchTensor> handles_, made_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
  std::map<size_t, nb::object> copies_;
};

nb::list run(BoundProgram& bound,
             const nb::tuple& tensors,
             const nb::list& pieces,
             uintptr_t workspace) {
  const Call call;
  Run run(bound, tensors, pieces);
  run.run(bound.program, reinterpret_cast<void*>(workspace));
  return run.results();
}

void refresh(BoundProgram& bound, const Addresses& constants) {
  const Call call;
  std::vector<const void*> addresses = pointers(constants);
  const nb::gil_scoped_release release;
  bound.program.refresh(std::move(addresses));
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
  nb::class_<Output>(package, "AtenOutput", "How an output of an AtenProgram lies.")
      .def("__init__",
           make_output,
           "shape"_a,
           "strides"_a,
           "dtype"_a,
           "piece"_a.none() = nb::none(),
           "offset"_a = 0,
           "over"_a.none() = nb::none());
  nb::class_<BoundProgram>(package, "AtenProgram", "A graph of torch.compile, for ridge.torch.")
      .def("__init__", compile, "graph"_a, "constants"_a)
      .def("bind", bind, "taken"_a, "inputs"_a, "outputs"_a, "placed"_a)
      .def("run",
           run,
           "tensors"_a,
           "pieces"_a,
           "workspace"_a,
           nb::sig("def run(self, tensors: tuple[object, ...], pieces: list[object], workspace: "
                   "int) -> list[object]"))
      .def_prop_ro("workspace_bytes",
                   [](const BoundProgram& b) { return b.program.workspace_bytes(); })
      .def("is_stale", [](const BoundProgram& b) { return b.program.is_stale(); })
      .def("refresh", refresh, "constants"_a)
      .def("orders", [](const BoundProgram& b) { return b.program.orders(); })
      .def("plan", [](const BoundProgram& b) { return b.program.plan(); });
  package.def("use_torch", use_torch, "library"_a, "handles_of"_a, "tensors_of"_a);
  package.def("aten_refusals", refusals_of, "graph"_a);
  package.def("draw_bernoulli", draw, "state"_a, "state_bytes"_a, "p"_a, "elements"_a, "count"_a);
  package.def("make_resident", prepare_memory, "address"_a, "bytes"_a);
  package.def("use_threads", use_threads, "count"_a);
}

}  // namespace ridge::python
