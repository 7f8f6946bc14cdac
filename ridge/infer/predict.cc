#include "ridge/infer/predict.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "ridge/infer/bind_inputs.h"
#include "ridge/infer/callers.h"

namespace ridge {
namespace {

bool leads(const DataSpec& spec, const std::string& dim) {
  return !spec.dims.empty() && spec.dims[0].name == dim;
}

bool leads_if_anywhere(const DataSpec& spec, const std::string& dim) {
  return std::none_of(spec.dims.begin() + (spec.dims.empty() ? 0 : 1),
                      spec.dims.end(),
                      [&](const Dim& each) { return each.name == dim; });
}

Binding binding_of_all(const std::vector<DataSpec>& specs, const NamedRows& inputs) {
  for (const auto& [name, rows] : inputs) find_input(specs, name);
  for (const DataSpec& spec : specs)
    if (!inputs.contains(spec.name)) refuse_missing(specs, spec.name);
  Binding binding;
  for (const DataSpec& spec : specs) bind_input(spec, inputs.at(spec.name)->type(), binding);
  return binding;
}

// Runs of one thread. Rows are read while `reading` is held.
class BatchedRun {
 public:
  BatchedRun(ModelSession& session, const NamedRows& inputs, std::string dim, std::mutex& reading)
      : session_(session), inputs_(inputs), dim_(std::move(dim)), reading_(reading) {}

  NamedTensors run(int64_t first, int64_t count) {
    {
      const std::lock_guard lock(reading_);
      for (const DataSpec& spec : session_.inputs()) read(spec, first, count);
    }
    return session_.run(data_);
  }

 private:
  // The tensor of the batch before serves again where it has the size.
  void read(const DataSpec& spec, int64_t first, int64_t count) {
    InputRows& rows = *inputs_.at(spec.name);
    Tensor& tensor = data_[spec.name];
    const bool has_rows = !dim_.empty() && leads(spec, dim_);
    if (!has_rows && tensor.data() != nullptr) return;
    TensorType type = rows.type();
    if (has_rows) type.shape[0] = count;
    if (tensor.data() == nullptr || tensor.type() != type) tensor = Tensor(type);
    rows.read(has_rows ? first : 0, tensor);
  }

  ModelSession& session_;
  const NamedRows& inputs_;
  std::string dim_;
  std::mutex& reading_;
  NamedTensors data_;
};

void add_rows(const NamedTensors& outputs, int64_t first, int64_t rows, NamedTensors& all) {
  for (const auto& [name, tensor] : outputs) {
    Tensor& whole = all[name];
    TensorType type = tensor.type();
    const size_t row_bytes = tensor.bytes() / static_cast<size_t>(type.shape[0]);
    type.shape[0] = rows;
    if (whole.data() == nullptr) whole = Tensor(type);
    std::memcpy(static_cast<std::byte*>(whole.data()) + static_cast<size_t>(first) * row_bytes,
                tensor.data(),
                tensor.bytes());
  }
}

}  // namespace

void TensorRows::read(int64_t first, Tensor& rows) {
  const size_t row_bytes =
      rows.type().rank() == 0 ? 0 : rows.bytes() / static_cast<size_t>(rows.type().shape[0]);
  std::memcpy(
      rows.data(),
      static_cast<const std::byte*>(tensor_.data()) + static_cast<size_t>(first) * row_bytes,
      rows.bytes());
}

std::string dim_of_rows(const std::vector<DataSpec>& inputs, const std::vector<DataSpec>& outputs) {
  if (outputs.empty() || outputs[0].dims.empty()) return {};
  const std::string& dim = outputs[0].dims[0].name;
  const auto has_it = [&](const DataSpec& spec) { return leads(spec, dim); };
  const auto nowhere_else = [&](const DataSpec& spec) { return leads_if_anywhere(spec, dim); };
  return std::all_of(outputs.begin(), outputs.end(), has_it) &&
                 std::any_of(inputs.begin(), inputs.end(), has_it) &&
                 std::all_of(outputs.begin(), outputs.end(), nowhere_else) &&
                 std::all_of(inputs.begin(), inputs.end(), nowhere_else)
             ? dim
             : std::string();
}

Prediction predict(ModelSession& session,
                   const NamedRows& inputs,
                   int64_t batch,
                   int64_t instances) {
  const Binding binding = binding_of_all(session.inputs(), inputs);
  const std::string dim = dim_of_rows(session.inputs(), session.outputs());
  Prediction result{.outputs = {}, .rows = dim.empty() ? 0 : binding.at(dim)};
  std::mutex reading, adding;
  if (result.rows <= batch) {
    result.outputs = BatchedRun(session, inputs, dim, reading).run(0, result.rows);
    result.batches = 1;
    return result;
  }
  result.batches = (result.rows + batch - 1) / batch;
  std::atomic<int64_t> next = 0;
  const auto run_batches = [&] {
    BatchedRun batched(session, inputs, dim, reading);
    for (int64_t number = next++; number < result.batches; number = next++) {
      const int64_t first = number * batch, count = std::min(batch, result.rows - first);
      try {
        const NamedTensors outputs = batched.run(first, count);
        const std::lock_guard lock(adding);
        add_rows(outputs, first, result.rows, result.outputs);
      } catch (const UserError& error) {
        next = result.batches;  // nobody needs the rest
        throw UserError(fmt::format("rows {} to {}: {}", first, first + count - 1, error.message()),
                        error.fix());
      }
    }
  };
  Callers(static_cast<size_t>(std::min(instances, result.batches))).run([&](size_t) {
    run_batches();
  });
  return result;
}

}  // namespace ridge
