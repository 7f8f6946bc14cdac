#include "ridge/infer/input_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "ridge/base/utf8.h"
#include "ridge/infer/bind_inputs.h"
#include "ridge/io/npy.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// The text of one argument.
InputFile parse_input_file(const std::string& text, const std::vector<DataSpec>& specs) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto is_named = [&](const DataSpec& spec) { return spec.name == name; };
  std::error_code ignored;
  if (equals != std::string::npos &&
      (std::any_of(specs.begin(), specs.end(), is_named) || !fs::exists(text, ignored)))
    return {find_input(specs, name).name, text.substr(equals + 1)};
  if (specs.size() == 1) return {specs[0].name, text};
  if (text.ends_with(".npz")) return {"", text};
  throw UserError(
      fmt::format(
          "'{}' is for no input by name: the model takes {}", shown_text(text), listed(specs)),
      fmt::format("write {}=FILE", specs[0].name));
}

// The place of element `at` in row-major order: "[3,7]".
std::string place_text(const Shape& shape, int64_t at) {
  Shape place(shape.size());
  for (size_t d = shape.size(); d-- > 0; at /= shape[d]) place[d] = at % shape[d];
  return to_string(place);
}

[[noreturn]] void refuse_element(const DataSpec& spec,
                                 const Tensor& tensor,
                                 int64_t at,
                                 const std::string& why,
                                 const std::string& fix) {
  throw UserError(fmt::format("input '{}' is {} at {}, {}; got {}, expected {}",
                              spec.name,
                              tensor.at(at),
                              place_text(tensor.type().shape, at),
                              why,
                              to_string(tensor.type()),
                              type_text(spec)),
                  fix);
}

void check_finite(const DataSpec& spec, const Tensor& tensor) {
  if (!is_float(tensor.type().dtype)) return;
  for (int64_t i = 0; i < tensor.elements(); ++i)
    if (!std::isfinite(tensor.at(i)))
      refuse_element(spec,
                     tensor,
                     i,
                     "and the model takes finite numbers alone",
                     "fill it in, or leave its row out");
}

// Doubles hold all values that stay as they are: an i64 that they round is beyond other integers.
Tensor convert_to_spec(const DataSpec& spec, Tensor tensor) {
  const DType from = tensor.type().dtype;
  const bool is_like =
      (is_float(from) && is_float(spec.dtype)) || (is_integer(from) && is_integer(spec.dtype));
  if (from == spec.dtype || !is_like) return tensor;  // bind_input() refuses what is not alike
  Tensor result({spec.dtype, tensor.type().shape});
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.at(i);
    result.set(i, value);
    if (is_float(from) ? !std::isfinite(result.at(i)) : result.at(i) != value)
      refuse_element(spec,
                     tensor,
                     i,
                     fmt::format("beyond {}", name_of(spec.dtype)),
                     "scale it, or leave its row out");
  }
  return result;
}

class InputReader {
 public:
  InputReader(const std::vector<DataSpec>& specs, OpenSamples open_samples, TrainObserver& observer)
      : specs_(specs), open_samples_(open_samples), observer_(observer) {}

  void add(const InputFile& file) {
    if (file.path.ends_with(".npz")) return add_arrays(file);
    const DataSpec& spec = find_input(specs_, file.input);
    if (std::unique_ptr<InputRows> samples = open_samples_(spec, file.path))
      put(spec, file.path, std::move(samples));
    else
      add_array(file.input, file.path, read_npy(file.path));
  }

  NamedRows inputs;

 private:
  void add_array(const std::string& name, const std::string& path, Tensor tensor) {
    const DataSpec& spec = find_input(specs_, name);
    in_file(path, [&] {
      check_finite(spec, tensor);
      tensor = convert_to_spec(spec, std::move(tensor));
    });
    put(spec, path, std::make_unique<TensorRows>(std::move(tensor)));
  }

  void add_arrays(const InputFile& file) {
    const MappedFile mapped(file.path);
    const NpzView arrays(mapped.bytes(), file.path);
    const std::vector<std::string>& names = arrays.names();
    if (!file.input.empty()) {
      // One that is alone needs no name.
      const bool is_alone = names.size() == 1 && !arrays.contains(file.input);
      const std::string& name = is_alone ? names[0] : file.input;
      return add_array(file.input, file.path, arrays.read(name));
    }
    for (const std::string& name : names) {
      if (std::any_of(specs_.begin(), specs_.end(), [&](const DataSpec& spec) {
            return spec.name == name;
          }))
        add_array(name, file.path, arrays.read(name));
      else
        observer_.on_message(
            fmt::format("'{}': array '{}' is for no input of the model and is "
                        "left out",
                        file.path,
                        shown_text(name)));
    }
  }

  void put(const DataSpec& spec, const std::string& path, std::unique_ptr<InputRows> rows) {
    in_file(path, [&] { bind_input(spec, rows->type(), binding_); });
    check(inputs.emplace(spec.name, std::move(rows)).second,
          "input '{}' is given by two files, the second of which is '{}'; leave one out",
          spec.name,
          path);
  }

  // Says where, in addition.
  template <typename F>
  static void in_file(const std::string& path, F&& body) {
    try {
      body();
    } catch (const UserError& error) {
      throw UserError(fmt::format("'{}': {}", path, error.message()), error.fix());
    }
  }

  const std::vector<DataSpec>& specs_;
  OpenSamples open_samples_;
  TrainObserver& observer_;
  Binding binding_;
};

}  // namespace

std::vector<InputFile> parse_input_files(const std::vector<std::string>& texts,
                                         const std::vector<DataSpec>& specs) {
  std::vector<InputFile> files;
  for (const std::string& text : texts) files.push_back(parse_input_file(text, specs));
  for (const DataSpec& spec : specs)
    check(std::count_if(files.begin(),
                        files.end(),
                        [&](const InputFile& file) { return file.input == spec.name; }) <= 1,
          "input '{}' is given twice; name one file",
          spec.name);
  return files;
}

NamedRows read_inputs(const std::vector<InputFile>& files,
                      const std::vector<DataSpec>& specs,
                      OpenSamples open_samples,
                      TrainObserver& observer) {
  InputReader reader(specs, open_samples, observer);
  for (const InputFile& file : files) reader.add(file);
  return std::move(reader.inputs);
}

}  // namespace ridge
