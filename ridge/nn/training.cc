#include "ridge/nn/training.h"

#include <optional>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/source.h"
#include "ridge/nn/loss.h"

namespace ridge::nn {
namespace {

constexpr std::string_view kSumNames[] = {"sum.loss", "sum.count"};

std::string gradient_name(const std::string& parameter) { return parameter + ".grad"; }

// `new_value` takes over the buffer of the input `name`.
void update(Graph& graph, const std::string& name, Value new_value) {
  graph.add_output(name + ".new", new_value, name);
}

// The model's nodes for one batch, up to the logits and the sums of the loss.
struct Forward {
  Forward(const Model& model, Graph& graph, BuildMode mode, int64_t items = 0)
      : context(graph, model.dtype(), mode), length(items) {
    x = input(graph, "x", batched(model.sample().x), 0);
    logits = model.logits(context, x);
  }

  void add_loss(const Model& model) {
    Graph& graph = context.graph();
    y = input(graph, "y", batched(model.sample().y), 0);
    sums = loss_sums(model, logits, y);
  }

  // Gradients of the summed loss, as the accumulate dtype; of the scaled loss where there is a
  // scale.
  std::vector<Value> gradients_of_sum(const std::optional<LossScale>& scale) const {
    const Value loss = scale ? scale->scaled(sums.loss) : sums.loss;
    std::vector<Value> result = gradients(loss, context.parameter_values());
    for (Value& gradient : result) gradient = cast(gradient, sums.loss.dtype());
    return result;
  }

  // A batch that is not finite must not spoil the running statistics, which are needed to examine
  // the halted run.
  void finish_statistics(Value halted) {
    if (context.statistic_updates().empty()) return;
    const SiteScope scope(context.graph(), "statistics");
    update_statistics_where(
        logical_and(is_finite(sums.loss), eq(halted, constant_like(halted, 0.0))));
  }

  void update_statistics_where(Value fine) {
    for (const StatisticUpdate& u : context.statistic_updates())
      update(context.graph(), u.name, where(fine, u.new_value, u.old_value));
  }

  // A statistic that is not finite shows in the sums, and is dropped with them.
  void add_to_pending_statistics() {
    const SiteScope scope(context.graph(), "statistics");
    for (const StatisticUpdate& u : context.statistic_updates())
      update(context.graph(), pending_name(u.name), u.new_value - u.old_value.node->inputs[0]);
  }

  TensorType batched(TensorType type) const {
    if (length > 0) {
      check(type.rank() == 1 && length <= type.shape[0],
            "training: a sample {} cannot be cut to {} items",
            to_string(type),
            length);
      type.shape[0] = length;
    }
    type.shape.insert(type.shape.begin(), context.samples());
    return type;
  }

  ModuleContext context;
  int64_t length;  ///< BatchSize::length.
  Value x, logits, y;
  LossSums sums;
};

// Inputs of the optimizer's part of a graph.
struct StepInputs {
  std::vector<Value> parameters, gradients;  ///< One a parameter; gradients of the summed loss.
  LossSums sums;
  Value halted;
  std::optional<LossScale> scale;  ///< The scale that the gradients have.
};

// The outputs "loss", "grad_norm" and "count", the guarded update of parameters and moments,
// "halted", and the loss scale.
class StepBuilder {
 public:
  StepBuilder(const Training& training, Graph& graph, StepInputs inputs)
      : training_(training), graph_(graph), in_(std::move(inputs)) {}

  /// Returns whether the step counts.
  Value build() {
    const SiteScope scope(graph_, "optimizer");
    const Value hyper = input(graph_, "hyper", training_.hyper_type());
    hyper_ = split_hyper(in_.scale ? in_.scale->fitting_row(hyper) : hyper);
    // With no target that counts the gradients are zeros: they must not become 0 / 0.
    const Value one = constant_like(in_.sums.count, 1.0);
    const Value count = maximum(in_.sums.count, one);
    const Value loss = in_.sums.loss / count;
    if (in_.scale) in_.gradients = in_.scale->unscaled(std::move(in_.gradients));
    const Value norm = global_norm(in_.gradients) / count;
    const Value running = eq(in_.halted, constant_like(in_.halted, 0.0));
    fine_ = logical_and(running, logical_and(is_finite(loss), is_finite(norm)));
    const double clip = training_.optimizer().clip;
    factor_ = (clip > 0.0 ? clip_coefficient(norm, clip) : one) / count;
    for (size_t i = 0; i < in_.parameters.size(); ++i) step_parameter(i);
    const Value goes_on =
        in_.scale ? in_.scale->finish_step(
                        training_.loss_scale(), logical_and(running, is_finite(loss)), fine_)
                  : fine_;
    // It counts the steps since, so that a late reader knows which was the first.
    update(graph_, "halted", where(goes_on, constant_like(one, 0.0), in_.halted + one));
    graph_.add_output("loss", loss);
    graph_.add_output("grad_norm", norm);
    graph_.add_output("count", in_.sums.count);
    return fine_;
  }

 private:
  void step_parameter(size_t i) {
    const ParameterSpec& spec = training_.parameters()[i];
    const SiteScope scope(graph_, spec.name);
    const std::vector<std::string> names = moment_names(training_.optimizer(), spec.name);
    ParameterUpdate old{in_.parameters[i], in_.gradients[i] * factor_, {}, spec.decay};
    for (const std::string& name : names)
      old.moments.push_back(input(graph_, name, {training_.accumulate(), spec.type.shape}));
    const UpdatedParameter next = update_parameter(training_.optimizer(), old, hyper_);
    update(graph_, spec.name, where(fine_, next.parameter, old.parameter));
    for (size_t k = 0; k < names.size(); ++k)
      update(graph_, names[k], where(fine_, next.moments[k], old.moments[k]));
  }

  const Training& training_;
  Graph& graph_;
  StepInputs in_;
  HyperValues hyper_;
  Value fine_, factor_;
};

std::optional<LossScale> loss_scale_in(Graph& graph, const LossScaleOptions& options, DType dtype) {
  if (options.initial == 0) return std::nullopt;
  return LossScale(graph, dtype);
}

Graph batch_graph(std::string name, BatchSize batch) {
  check(batch.samples >= 1, "training: a batch must have at least 1 sample; got {}", batch.samples);
  check(batch.length >= 0, "training: samples cannot be cut to {} items", batch.length);
  Graph graph(std::move(name));
  if (batch.length == 0)
    graph.set_binding({{"B", batch.samples}});
  else
    graph.set_binding({{"B", batch.samples}, {"T", batch.length}});
  return graph;
}

}  // namespace

std::string entry_name(std::string_view base, const std::vector<BatchSize>& sizes, BatchSize size) {
  if (sizes.empty() || sizes[0] == size) return std::string(base);
  const std::string name = fmt::format("{}.{}", base, size.samples);
  return size.length == 0 ? name : fmt::format("{}x{}", name, size.length);
}

size_t fitting_size(const std::vector<BatchSize>& sizes, int64_t samples, int64_t longest) {
  size_t best = sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t length = sizes[i].length;
    const bool has_room = length == 0 || (longest > 0 && longest <= length);
    if (sizes[i].samples != samples || !has_room) continue;
    const bool is_shorter =
        best == sizes.size() ||
        (length > 0 && (sizes[best].length == 0 || length < sizes[best].length));
    if (is_shorter) best = i;
  }
  check_internal(best < sizes.size(), "no entry for {} samples of {} items", samples, longest);
  return best;
}

Training::Training(std::shared_ptr<const Model> model,
                   OptimizerOptions optimizer,
                   LossScaleOptions loss_scale)
    : model_(std::move(model)), optimizer_(std::move(optimizer)), loss_scale_(loss_scale) {
  check_options(optimizer_);
  check_options(loss_scale_);
  Graph graph;
  const Forward forward(*model_, graph, {});
  parameters_ = forward.context.parameters();
  statistics_ = forward.context.statistics();
}

DType Training::accumulate() const { return accumulate_dtype(model_->dtype()); }

Graph Training::micro(BatchSize batch, std::string name) const {
  Graph graph = batch_graph(std::move(name), batch);
  Forward forward(*model_, graph, {true, batch.samples, has_loss_scale()}, batch.length);
  forward.add_loss(*model_);
  const std::vector<Value> gradient =
      forward.gradients_of_sum(loss_scale_in(graph, loss_scale_, accumulate()));
  {
    const SiteScope scope(graph, "accumulate");
    const auto accumulate_into = [&](const std::string& buffer, Value term) {
      update(graph, buffer, input(graph, buffer, term.type()) + term);
    };
    for (size_t i = 0; i < parameters_.size(); ++i)
      accumulate_into(gradient_name(parameters_[i].name), gradient[i]);
    const Value sums[] = {forward.sums.loss, forward.sums.count};
    for (size_t i = 0; i < std::size(sums); ++i)
      accumulate_into(std::string(kSumNames[i]), sums[i]);
  }
  if (has_loss_scale())
    forward.add_to_pending_statistics();
  else if (!statistics_.empty())
    forward.finish_statistics(input(graph, "halted", {accumulate(), {}}));
  return graph;
}

TensorType Training::hyper_type() const {
  if (!has_loss_scale()) return {accumulate(), {kStepScalars}};
  return {accumulate(), {2 + kMostUnknownSkips, kStepScalars}};
}

void Training::set_hyper(const ScheduleOptions& schedule,
                         const StepPlace& place,
                         Tensor& hyper) const {
  const auto scalars = [&](int64_t skipped) {
    return step_scalars(optimizer_, schedule, place.step, place.total_steps, skipped);
  };
  if (!has_loss_scale()) return nn::set_hyper(scalars(0), hyper);
  check_internal(place.maybe_skipped <= kMostUnknownSkips,
                 "{} steps of which it is not known whether they were skipped",
                 place.maybe_skipped);
  hyper.set(0, static_cast<double>(place.skipped));
  for (int64_t more = 0; more <= place.maybe_skipped; ++more)
    nn::set_hyper(scalars(place.skipped + more), hyper, 1 + more);
}

Tensor Training::hyper(const ScheduleOptions& schedule, const StepPlace& place) const {
  Tensor hyper(hyper_type());
  set_hyper(schedule, place, hyper);
  return hyper;
}

Graph Training::apply() const {
  Graph graph("apply");
  const DType dtype = accumulate();
  StepInputs in;
  for (const ParameterSpec& spec : parameters_) {
    in.parameters.push_back(input(graph, spec.name, spec.type));
    in.gradients.push_back(input(graph, gradient_name(spec.name), {dtype, spec.type.shape}));
  }
  const auto sum = [&](size_t i) { return input(graph, std::string(kSumNames[i]), {dtype, {}}); };
  in.sums.loss = sum(0);
  in.sums.count = sum(1);
  in.halted = input(graph, "halted", {dtype, {}});
  in.scale = loss_scale_in(graph, loss_scale_, dtype);
  const Value fine = StepBuilder(*this, graph, in).build();

  const SiteScope scope(graph, "clear");
  const auto clear = [&](const std::string& name, Value value) {
    update(graph, name, constant_like(value, 0.0));
  };
  for (size_t i = 0; i < parameters_.size(); ++i)
    clear(gradient_name(parameters_[i].name), in.gradients[i]);
  clear(std::string(kSumNames[0]), in.sums.loss);
  clear(std::string(kSumNames[1]), in.sums.count);
  if (!has_loss_scale()) return graph;
  for (const StatisticSpec& spec : statistics_) {
    const Value before = input(graph, spec.name, spec.type);
    const Value pending = input(graph, pending_name(spec.name), spec.type);
    update(graph, spec.name, where(fine, before + pending, before));
    clear(pending_name(spec.name), pending);
  }
  return graph;
}

Graph Training::step(BatchSize batch, std::string name) const {
  Graph graph = batch_graph(std::move(name), batch);
  Forward forward(*model_, graph, {true, batch.samples}, batch.length);
  forward.add_loss(*model_);
  const std::optional<LossScale> scale = loss_scale_in(graph, loss_scale_, accumulate());
  StepInputs in{forward.context.parameter_values(),
                forward.gradients_of_sum(scale),
                forward.sums,
                input(graph, "halted", {accumulate(), {}}),
                scale};
  if (!scale) forward.finish_statistics(in.halted);
  const Value fine = StepBuilder(*this, graph, std::move(in)).build();
  if (!scale) return graph;
  const SiteScope scope(graph, "statistics");
  forward.update_statistics_where(fine);
  return graph;
}

Graph Training::evaluation(BatchSize batch, std::string name) const {
  Graph graph = batch_graph(std::move(name), batch);
  Forward forward(*model_, graph, {false, batch.samples}, batch.length);
  forward.add_loss(*model_);
  graph.add_output("loss", forward.sums.loss);
  graph.add_output("count", forward.sums.count);
  if (!model_->sample().regression())
    graph.add_output("correct", count_correct(forward.logits, forward.y));
  return graph;
}

Graph Training::logits(BatchSize batch, std::string name) const {
  Graph graph = batch_graph(std::move(name), batch);
  const Forward forward(*model_, graph, {false, batch.samples}, batch.length);
  graph.add_output("logits", forward.logits);
  return graph;
}

BatchReport Training::batch_report(int64_t batch) const {
  return analyze_batch([this](int64_t samples) { return micro(samples); }, batch);
}

std::vector<StateEntry> Training::model_state() const {
  std::vector<StateEntry> entries;
  for (const ParameterSpec& spec : parameters_)
    entries.push_back({spec.name, spec.type, StateRole::kParameter, spec.init});
  for (const StatisticSpec& spec : statistics_)
    entries.push_back(
        {spec.name, spec.type, StateRole::kStatistic, Initializer::constant(spec.initial)});
  return entries;
}

std::vector<StateEntry> Training::state(bool accumulates) const {
  const DType dtype = accumulate();
  std::vector<StateEntry> entries = model_state();
  for (const ParameterSpec& spec : parameters_)
    for (const std::string& name : moment_names(optimizer_, spec.name))
      entries.push_back({name, {dtype, spec.type.shape}, StateRole::kOptimizer});
  entries.push_back({"halted", {dtype, {}}, StateRole::kScaler});
  for (StateEntry& entry : loss_scale_state(loss_scale_, dtype)) entries.push_back(entry);
  if (!accumulates) return entries;
  for (const ParameterSpec& spec : parameters_)
    entries.push_back({gradient_name(spec.name), {dtype, spec.type.shape}, StateRole::kGradient});
  for (std::string_view name : kSumNames)
    entries.push_back({std::string(name), {dtype, {}}, StateRole::kGradient});
  if (!has_loss_scale()) return entries;
  for (const StatisticSpec& spec : statistics_)
    entries.push_back({pending_name(spec.name), spec.type, StateRole::kGradient});
  return entries;
}

ProgramGraphs Training::program(const ProgramSizes& sizes) const {
  ProgramGraphs program;
  program.state = state(!sizes.micro.empty());
  const auto add_all = [&](std::string_view name, const std::vector<BatchSize>& list, auto build) {
    for (BatchSize size : list)
      program.entries.push_back((this->*build)(size, entry_name(name, list, size)));
  };
  add_all("micro", sizes.micro, &Training::micro);
  if (!sizes.micro.empty()) program.entries.push_back(apply());
  add_all("step", sizes.step, &Training::step);
  add_all("eval", sizes.eval, &Training::evaluation);
  add_all("logits", sizes.logits, &Training::logits);
  return program;
}

std::map<std::string, Tensor> Training::initial_state(bool accumulates, uint64_t seed) const {
  std::map<std::string, Tensor> values;
  for (const StateEntry& entry : state(accumulates))
    values.emplace(entry.name, initial_value({entry.name, entry.type, entry.init}, seed));
  return values;
}

}  // namespace ridge::nn
