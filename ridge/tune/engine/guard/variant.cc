#include "ridge/tune/engine/guard/variant.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <set>

#include "ridge/graph/ops/attention.h"
#include "ridge/run/backends.h"

namespace ridge {
namespace {

ProgramOptions options_of(const TrainConfig& config,
                          const Task& task,
                          const TrainingVariantOptions& options) {
  ProgramOptions result = options.program ? *options.program : program_options(config, task);
  if (!options.pins.empty()) result.passes.pins = options.pins;
  if (options.choose) result.plan.choose = options.choose;
  return result;
}

// "blocks.0.attn.qkv" -> "blocks.0.attn": what comes after the last number, and no more.
std::string module_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  size_t keep = 1;
  for (size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].empty() && std::isdigit(static_cast<unsigned char>(parts[i][0])) != 0)
      keep = std::min(parts.size(), i + 2);
  std::string module = parts[0];
  for (size_t i = 1; i < keep; ++i) module += "." + parts[i];
  return module;
}

}  // namespace

Tensor converted(const Tensor& from, DType dtype) {
  if (from.type().dtype == dtype) return from;
  Tensor to(TensorType{dtype, from.type().shape});
  for (int64_t i = 0; i < from.elements(); ++i) to.set(i, from.at(i));
  return to;
}

Tensor rounded(const Tensor& from, Rounding to) {
  if (!to.tf32) return converted(converted(from, to.dtype), DType::kF32);
  Tensor result = converted(from, DType::kF32);
  for (float& x : result.span<float>()) {
    if (!std::isfinite(x)) continue;
    // To nearest even; a carry into the exponent is right as it comes.
    uint32_t bits = std::bit_cast<uint32_t>(x);
    bits += 0xfffu + (bits >> 13 & 1u);
    x = std::bit_cast<float>(bits & ~0x1fffu);
  }
  return result;
}

StateSnapshot snapshot_of(const Variant& variant) {
  StateSnapshot snapshot;
  for (const StateEntry& entry : variant.entries())
    if (is_saved(entry.role)) snapshot.emplace(entry.name, variant.read(entry.name));
  return snapshot;
}

void restore(Variant& variant, const StateSnapshot& snapshot) {
  for (const StateEntry& entry : variant.entries()) {
    const auto at = snapshot.find(entry.name);
    if (at == snapshot.end() && entry.role == StateRole::kScaler) continue;
    variant.write(
        entry.name,
        at == snapshot.end() ? Tensor(entry.type) : converted(at->second, entry.type.dtype));
  }
}

TrainingVariant::TrainingVariant(TrainConfig config, const TrainingVariantOptions& options)
    : config_(std::move(config)),
      total_steps_(options.total_steps),
      task_(open_task(config_)),
      backend_(make_backend(config_.train.device)) {
  // The batches come from outside, and data may be large.
  task_.train_data.reset();
  task_.eval_data.reset();
  ProgramGraphs graphs = task_.training->program(task_.sizes);
  if (options.edit) options.edit(graphs);
  const ProgramOptions program = options_of(config_, task_, options);
  if (config_.model.dtype == DType::kF32)
    precision_ = {program.passes.precision, program.passes.tf32};
  pins_ = program.passes.pins;
  run_ = std::make_unique<TrainingRun>(task_, config_, *backend_, program, std::move(graphs));
  const Plan& plan = run_->program().plan();
  for (size_t i = 0; i < plan.state.size(); ++i)
    entries_.push_back({plan.state[i].name, plan.state[i].type, plan.roles[i]});
}

Tensor TrainingVariant::read(const std::string& name) const {
  return run_->program().state().read(name);
}

void TrainingVariant::write(const std::string& name, const Tensor& value) {
  run_->program().state().write(name, value);
}

double TrainingVariant::step(const data::Batch& batch, int64_t step) {
  return run_->settled_step(batch, step, total_steps_).loss;
}

bool TrainingVariant::overflow(const data::Batch& batch, int64_t step) {
  if (run_->loss_scale() == 0) return false;
  Tensor most = read(std::string(nn::kLossScale));
  most.set(0, nn::kMostLossScale);
  write(std::string(nn::kLossScale), most);
  run_->train_step(batch, step, total_steps_);
  return true;
}

Rounding TrainingVariant::precision() const {
  return low_modules().empty() ? Rounding{} : precision_;
}

// By what the pass place_casts goes by, whatever it makes of a contraction.
std::vector<std::string> TrainingVariant::low_modules() const {
  std::set<std::string> modules;
  if (precision_.is_f32()) return {};
  const bool lowers_attention = !precision_.tf32 && backend_->stores_16_bits();
  const auto is_pinned = [&](const std::string& site) {
    return std::any_of(
        pins_.begin(), pins_.end(), [&](const std::string& pin) { return site.starts_with(pin); });
  };
  for (const Graph& graph : run_->program().entries())
    for (const auto& node : graph.nodes()) {
      const std::string& site = node->site.name;
      const bool is_attention = node->is<Attention>() || node->is<AttentionGrad>();
      if (node->op->traits().op_class == OpClass::kContraction &&
          (!is_attention || lowers_attention) && !is_pinned(site))
        modules.insert(module_of(site.substr(0, site.find(':'))));
    }
  return {modules.begin(), modules.end()};
}

TrainConfig oracle_config(TrainConfig config) {
  config.model.dtype = DType::kF64;
  config.train.precision = Precision::kF32;
  config.train.memory_limit = 0;
  config.train.kernels = KernelsChoice::kSameBits;
  return config;
}

}  // namespace ridge
