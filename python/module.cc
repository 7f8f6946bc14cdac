// The extension of the package `ridge`: sessions, and the error of the engine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "python/arrays.h"
#include "python/aten.h"
#include "python/calls.h"
#include "ridge/ridge.h"

namespace ridge::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

nb::tuple shape_of(const DataSpec& spec) {
  nb::list shape;
  for (const Dim& dim : spec.dims) {
    if (dim.name.empty())
      shape.append(dim.size);
    else
      shape.append(dim.name);
  }
  return nb::tuple(shape);
}

nb::tuple specs_of(const std::vector<DataSpec>& specs) {
  nb::list list;
  for (const DataSpec& spec : specs) list.append(spec);
  return nb::tuple(list);
}

Session load(const std::string& model,
             int threads,
             const std::string& device,
             const std::string& weights,
             const std::string& recipe) {
  const Call call;
  const nb::gil_scoped_release release;
  if (threads != 0) set_num_threads(threads);
  Session session(model, {.device = device, .weights = weights, .recipe = recipe});
  if (threads != 0 && !recipe.empty()) set_num_threads(threads);  // the recipe has set its own
  return session;
}

class PythonSession {
 public:
  PythonSession(const std::filesystem::path& model,
                int threads,
                const std::string& device,
                const std::string& weights,
                const std::filesystem::path& recipe)
      : model_(model.string()), session_(load(model_, threads, device, weights, recipe.string())) {}

  const std::string& model() const { return model_; }
  nb::tuple inputs() const { return specs_of(session_.inputs()); }
  nb::tuple outputs() const { return specs_of(session_.outputs()); }

  nb::dict run(const nb::dict& given) {
    const Call call;
    std::vector<PythonArray> keepers;
    std::map<std::string, ArrayView> inputs;
    for (const auto& [key, value] : given) add_input(key, value, keepers, inputs);
    std::map<std::string, Array> results;
    {
      const nb::gil_scoped_release release;
      results = session_.run(inputs);
    }
    nb::dict outputs;
    for (const DataSpec& spec : session_.outputs())
      outputs[spec.name.c_str()] = numpy_array(results.at(spec.name));
    return outputs;
  }

  void bind(const Binding& sizes) {
    const Call call;
    const nb::gil_scoped_release release;
    session_.bind(sizes);
  }

 private:
  // The session refuses a name that it does not have. What Python runs meanwhile may change the
  // dictionary that has the value.
  void add_input(nb::handle key,
                 nb::handle value,
                 std::vector<PythonArray>& keepers,
                 std::map<std::string, ArrayView>& inputs) const {
    const nb::object array = nb::borrow(value);
    const auto name = nb::cast<std::string>(nb::str(key));
    const std::vector<DataSpec>& specs = session_.inputs();
    const auto spec = std::ranges::find(specs, name, &DataSpec::name);
    inputs.emplace(name,
                   spec == specs.end() ? ArrayView(DType::kBool, {1}, "", 1)
                                       : view_of(*spec, array, keepers.emplace_back()));
  }

  const std::string model_;
  Session session_;
};

void add_specs(nb::module_& package) {
  nb::class_<DataSpec>(package, "DataSpec", "An input or output of a model.")
      .def_ro("name", &DataSpec::name)
      .def_prop_ro(
          "dtype",
          [](const DataSpec& spec) { return numpy_name(spec.dtype); },
          "As NumPy names it: 'float32'.")
      .def_prop_ro("shape",
                   shape_of,
                   nb::sig("def shape(self) -> tuple[int | str, ...]"),
                   "Sizes; a name for each that calls may choose.")
      .def("__repr__", [](const DataSpec& spec) {
        const nb::str form("DataSpec(name={!r}, dtype={!r}, shape={!r})");
        return nb::str(form.attr("format")(spec.name, numpy_name(spec.dtype), shape_of(spec)));
      });
}

void add_sessions(nb::module_& package) {
  nb::class_<PythonSession>(
      package, "Session", "A model that runs. Any thread may call any method at any time.")
      .def(
          nb::init<const std::filesystem::path&,
                   int,
                   const std::string&,
                   const std::string&,
                   const std::filesystem::path&>(),
          "model"_a,
          nb::kw_only(),
          "threads"_a = 0,
          "device"_a = "",
          "weights"_a = "",
          "recipe"_a = "",
          nb::sig(
              "def __init__(self, model: str | os.PathLike[str], *, threads: int = 0, "
              "device: str = '', weights: str = '', recipe: str | os.PathLike[str] = '') -> None"),
          "Loads an ONNX model, or one that Ridge trained: its configuration, or the folder of "
          "its\n"
          "run. `threads` are those of all sessions of the process; 0 leaves them as they are, at\n"
          "first one a CPU, or as the recipe has them, which ridge.optimize() made for the model.")
      .def_prop_ro(
          "inputs", &PythonSession::inputs, nb::sig("def inputs(self) -> tuple[DataSpec, ...]"))
      .def_prop_ro(
          "outputs", &PythonSession::outputs, nb::sig("def outputs(self) -> tuple[DataSpec, ...]"))
      .def("run",
           &PythonSession::run,
           "inputs"_a,
           nb::sig("def run(self, inputs: dict[str, typing.Any]) -> dict[str, "
                   "numpy.typing.NDArray[typing.Any]]"),
           "The outputs by name, for an array an input, which is read where it lies.")
      .def("bind",
           &PythonSession::bind,
           "sizes"_a,
           "Compiles for these sizes of named dimensions, which else their first run does.")
      .def("__repr__", [](const PythonSession& session) {
        return nb::str(nb::str("<ridge.Session {!r}>").attr("format")(session.model()));
      });
}

}  // namespace

NB_MODULE(_ridge, package) {
  nb::set_leak_warnings(false);  // a daemon thread keeps what it has when the interpreter ends
  watch_interpreter();
  package.attr("version") = version();
  nb::exception<UserError>(package, "UserError").attr("__doc__") =
      "An error in an input, a file or the machine: what is wrong, where, why, and one fix.";
  add_specs(package);
  add_sessions(package);
  add_aten_programs(package);
}

}  // namespace ridge::python
