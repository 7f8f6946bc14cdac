#include "ridge/infer/samples/model_samples.h"

#include <algorithm>
#include <cstring>

#include "ridge/base/error.h"
#include "ridge/infer/bind_inputs.h"
#include "ridge/infer/input_files.h"
#include "ridge/infer/input_sizes.h"
#include "ridge/infer/made_inputs.h"
#include "ridge/io/npy.h"
#include "ridge/run/observer.h"

namespace ridge {
namespace {

constexpr uint64_t kSeed = 0x73616d706c65;

bool has_rows(const DataSpec& spec, const std::string& rows) {
  return !rows.empty() && !spec.dims.empty() && spec.dims[0].name == rows;
}

Binding sizes_of(const NamedTensors& sample, const std::vector<DataSpec>& inputs) {
  Binding sizes;
  for (const DataSpec& spec : inputs) bind_input(spec, sample.at(spec.name).type(), sizes);
  return sizes;
}

std::string key_of(size_t sample, size_t number) { return fmt::format("{}.{}", sample, number); }

}  // namespace

std::string ModelSamples::words(size_t used) const {
  const auto plural = [](size_t count) { return count == 1 ? "" : "s"; };
  if (is_drawn) return fmt::format("{} drawn sample{}", used, plural(used));
  if (used < samples.size()) return fmt::format("{} of your {} samples", used, samples.size());
  return fmt::format("your {} sample{}", used, plural(used));
}

ModelSamples samples_of(const NamedRows& data,
                        const std::vector<DataSpec>& inputs,
                        const std::vector<DataSpec>& outputs,
                        int64_t most) {
  ModelSamples result{.samples = {}, .sizes = {}, .rows = dim_of_rows(inputs, outputs)};
  for (const DataSpec& spec : inputs)
    if (!data.contains(spec.name)) refuse_missing(inputs, spec.name);
  int64_t count = 1;
  for (const DataSpec& spec : inputs)
    if (has_rows(spec, result.rows)) count = data.at(spec.name)->type().shape[0];
  for (int64_t row = 0; row < std::min(count, most); ++row) {
    NamedTensors sample;
    for (const DataSpec& spec : inputs) {
      InputRows& rows = *data.at(spec.name);
      TensorType type = rows.type();
      const bool is_row = has_rows(spec, result.rows);
      if (is_row) type.shape[0] = 1;
      Tensor tensor(type);
      rows.read(is_row ? row : 0, tensor);
      sample.emplace(spec.name, std::move(tensor));
    }
    result.samples.push_back(std::move(sample));
  }
  result.sizes = sizes_of(result.samples.front(), inputs);
  return result;
}

ModelSamples read_npz_samples(const std::string& path,
                              const std::vector<DataSpec>& inputs,
                              const std::vector<DataSpec>& outputs,
                              int64_t most) {
  TrainObserver nobody;
  const auto no_samples = [](const DataSpec&, const std::string&) {
    return std::unique_ptr<InputRows>();
  };
  return samples_of(read_inputs(parse_input_files({path}, inputs), inputs, no_samples, nobody),
                    inputs,
                    outputs,
                    most);
}

ModelSamples drawn_samples(const ModelSource& source, const Binding& sizes, size_t count) {
  const std::vector<DataSpec> inputs = source.inputs();
  InputSizes all = input_sizes(inputs, sizes, /*samples=*/1);
  if (!all.missing.empty()) refuse_missing_sizes(all.missing);
  ModelSamples result{.samples = {},
                      .sizes = std::move(all.binding),
                      .rows = dim_of_rows(inputs, source.outputs()),
                      .is_drawn = true};
  for (size_t i = 0; i < count; ++i) {
    result.samples.push_back(make_inputs(source, result.sizes, kSeed + i).tensors);
    // Inputs that all rows of a batch share are those of the first sample.
    for (const DataSpec& spec : inputs)
      if (i > 0 && !result.rows.empty() && !has_rows(spec, result.rows))
        result.samples.back()[spec.name] = result.samples.front().at(spec.name);
  }
  return result;
}

NamedTensors batch_of(const ModelSamples& samples,
                      const std::vector<DataSpec>& inputs,
                      size_t first,
                      int64_t batch) {
  check_internal(batch == 1 || !samples.rows.empty(), "[batch_of] the model has no rows");
  NamedTensors data;
  for (const DataSpec& spec : inputs) {
    const auto sample = [&](int64_t row) -> const Tensor& {
      const size_t number = (first + static_cast<size_t>(row)) % samples.samples.size();
      return samples.samples[number].at(spec.name);
    };
    if (!has_rows(spec, samples.rows)) {
      data.emplace(spec.name, sample(0));
      continue;
    }
    TensorType type = sample(0).type();
    type.shape[0] = batch;
    Tensor tensor(type);
    const size_t row_bytes = sample(0).bytes();
    for (int64_t row = 0; row < batch; ++row)
      std::memcpy(static_cast<std::byte*>(tensor.data()) + static_cast<size_t>(row) * row_bytes,
                  sample(row).data(),
                  row_bytes);
    data.emplace(spec.name, std::move(tensor));
  }
  return data;
}

SampleOutputs rows_of(NamedTensors outputs, const std::string& rows, int64_t batch) {
  if (rows.empty() || batch == 1) {
    SampleOutputs one;
    one.push_back(std::move(outputs));
    return one;
  }
  SampleOutputs result(static_cast<size_t>(batch));
  for (const auto& [name, tensor] : outputs) {
    TensorType type = tensor.type();
    type.shape[0] = 1;
    const size_t row_bytes = tensor.bytes() / static_cast<size_t>(batch);
    for (size_t row = 0; row < result.size(); ++row) {
      Tensor one(type);
      std::memcpy(
          one.data(), static_cast<const std::byte*>(tensor.data()) + row * row_bytes, row_bytes);
      result[row].emplace(name, std::move(one));
    }
  }
  return result;
}

void write_samples(const std::string& path,
                   const std::vector<NamedTensors>& samples,
                   const std::vector<DataSpec>& specs) {
  NamedTensors all;
  for (size_t s = 0; s < samples.size(); ++s)
    for (size_t i = 0; i < specs.size(); ++i)
      all.emplace(key_of(s, i), samples[s].at(specs[i].name));
  write_npz(path, all);
}

std::vector<NamedTensors> read_samples(const std::string& path,
                                       const std::vector<DataSpec>& specs) {
  const MappedFile file(path);
  const NpzView arrays(file.bytes(), path);
  std::vector<NamedTensors> samples;
  for (size_t s = 0; arrays.contains(key_of(s, 0)); ++s) {
    NamedTensors& sample = samples.emplace_back();
    for (size_t i = 0; i < specs.size(); ++i)
      sample.emplace(specs[i].name, arrays.read(key_of(s, i)));
  }
  return samples;
}

}  // namespace ridge
