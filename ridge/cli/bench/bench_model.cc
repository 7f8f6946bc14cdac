#include "ridge/cli/bench/bench_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ridge/base/cpu/parallel.h"
#include "ridge/cli/common/threads.h"
#include "ridge/compile/plan.h"
#include "ridge/graph/model_source.h"
#include "ridge/infer/bind_inputs.h"
#include "ridge/infer/callers.h"
#include "ridge/infer/input_sizes.h"
#include "ridge/infer/made_inputs.h"
#include "ridge/infer/model_session.h"
#include "ridge/run/state.h"
#include "ridge/train/process_memory.h"

namespace ridge {
namespace {

constexpr uint64_t kSeed = 1;

// The size that the first dimension of all inputs has in any binding; 0: there is none.
int64_t fixed_batch(const std::vector<DataSpec>& inputs) {
  std::set<int64_t> sizes;
  for (const DataSpec& input : inputs)
    sizes.insert(input.dims.empty() || !input.dims[0].name.empty() ? 0 : input.dims[0].size);
  return sizes.size() == 1 ? *sizes.begin() : 0;
}

// A model without a dimension of samples has one batch.
std::vector<int64_t> batches_for(const BenchRequest& request, const std::vector<DataSpec>& inputs) {
  const std::vector<std::string> dims = sample_dims(inputs);
  for (const int64_t batch : request.batches)
    check(batch >= 1, "--batch must be at least 1; got {}", batch);
  if (!dims.empty()) {
    if (request.dims.contains(dims[0]))
      throw UserError(fmt::format("'{}' is the dimension of samples", dims[0]),
                      fmt::format("give --batch {}", request.dims.at(dims[0])));
    return request.batches.empty() ? std::vector<int64_t>{1} : request.batches;
  }
  const int64_t fixed = std::max<int64_t>(fixed_batch(inputs), 1);
  for (const int64_t batch : request.batches)
    if (batch != fixed)
      throw UserError(
          fmt::format("no dimension of the model is one of samples by a name: it takes {}",
                      listed(inputs)),
          "leave out --batch");
  return {fixed};
}

std::vector<int64_t> threads_for(const BenchRequest& request) {
  for (const int64_t threads : request.threads)
    check(threads >= 1, "--threads must be at least 1; got {}", threads);
  return request.threads.empty() ? std::vector<int64_t>{num_threads()} : request.threads;
}

std::string elements_text(const DataSpec& input, const std::optional<int64_t>& bound) {
  if (is_float(input.dtype)) return "normal";
  const int64_t numbers = bound.value_or(2);
  return numbers == 1 ? "0" : fmt::format("0 {} {}", numbers == 2 ? "or" : "to", numbers - 1);
}

std::vector<BenchInput> inputs_of(const std::vector<DataSpec>& specs, const MadeInputs& made) {
  std::vector<BenchInput> inputs;
  for (const DataSpec& spec : specs) {
    const auto found = made.bounds.find(spec.name);
    const std::optional<int64_t> bound =
        found == made.bounds.end() ? std::optional<int64_t>() : found->second;
    inputs.push_back({.name = spec.name,
                      .type = type_text(spec),
                      .elements = elements_text(spec, bound),
                      .is_unbounded = is_integer(spec.dtype) && !bound});
  }
  return inputs;
}

// A batch, with its data.
struct Load {
  int64_t batch = 1;
  Binding binding;
  NamedTensors inputs;
};

// Measures one session from its load on.
class SessionBench {
 public:
  SessionBench(const BenchRequest& request, const Load& load, int threads)
      : request_(request), load_(load) {
    result_.batch = load.batch;
    result_.threads = threads;
    result_.instances = request.recipe ? request.recipe->instances : 1;
    result_.dims = load.binding;
  }

  BenchResult run() {
    if (request_.tune) tune();
    ModelSession session = first_run();
    add_picks(session);
    const auto plan = session.bind(load_.binding);
    BenchMemory& memory = result_.ridge.memory;
    memory.state = session.model().state->bytes();  // without weights that lie in a mapped file
    memory.arena = plan->arena_bytes;
    memory.planned = *memory.state + plan->total_bytes() - plan->allocated_state_bytes();
    Callers callers(static_cast<size_t>(result_.instances));
    CallRunner runner([&] { callers.run([&](size_t) { session.run(load_.inputs); }); },
                      request_.now);
    if (request_.against)
      run_in_turn(session, runner);
    else
      result_.ridge.latency = latency_of(time_alone(runner, request_.seconds, request_.now));
    return std::move(result_);
  }

 private:
  // A later session is measured, as it will be from now on.
  void tune() {
    ModelSession session(request_.open(), {.bindings = 1, .programs = 1, .tune = true});
    session.bind(load_.binding);
    add_picks(session);
  }

  void add_picks(const ModelSession& session) {
    const PickCounts picks = session.picks();
    result_.picks.timed += picks.timed;
    result_.picks.kept = picks.kept;
    if (!picks.note.empty()) result_.picks.note = picks.note;
  }

  ModelSession first_run() {
    release_free_memory();
    const bool has_peak = reset_peak_resident_bytes();
    const int64_t resident = resident_bytes(), start = request_.now();
    ModelSession session(request_.open(),
                         request_.recipe ? limits_of(*request_.recipe, 1)
                                         : ProgramLimits{.bindings = 1, .programs = 1});
    outputs_ = session.run(load_.inputs);
    result_.ridge.first_ms = static_cast<double>(request_.now() - start) * 1e-6;
    if (has_peak && resident > 0) result_.ridge.memory.resident = peak_resident_bytes() - resident;
    return session;
  }

  void run_in_turn(const ModelSession& session, LatencyRunner& runner) {
    RuntimePeer peer({.runtime = *request_.against,
                      .python = request_.python,
                      .model = request_.model,
                      .threads = result_.threads,
                      .inputs = &load_.inputs,
                      .supervisor = request_.supervisor});
    std::vector<Tensor> outputs;
    for (const DataSpec& spec : session.outputs()) outputs.push_back(outputs_.at(spec.name));
    BenchPeer& told = result_.peer.emplace();
    told.runtime = name_of(*request_.against);
    told.version = peer.version();
    told.difference = output_difference(outputs, peer.outputs());
    const PairedRuns both = time_in_turn(peer, runner, request_.seconds, request_.now);
    result_.ridge.latency = latency_of(both.after);
    told.side = {.latency = latency_of(both.before),
                 .first_ms = peer.first_seconds() * 1e3,
                 .memory = {.resident = peer.peak_bytes()}};
    told.pairs = std::ssize(both.trial.pairs) - both.trial.dropped;
    told.ratio = std::exp(both.trial.gain);
    if (const auto& gain = both.trial.interval)
      told.interval = {std::exp(gain->low), std::exp(gain->high), gain->confidence};
  }

  const BenchRequest& request_;
  const Load& load_;
  NamedTensors outputs_;
  BenchResult result_;
};

}  // namespace

BenchReport bench_model(const BenchRequest& request) {
  check(request.seconds > 0 && request.seconds <= 3600,
        "--seconds must be above 0 and at most 3600; got {}",
        request.seconds);
  const std::vector<int64_t> threads = threads_for(request);
  BenchReport report{.model = request.model, .device = {}, .seconds = request.seconds};
  std::vector<Load> loads;
  {
    const LoadedModel model = request.open();  // which is gone before anything is measured
    report.device = model.state->backend().name();
    const std::vector<DataSpec> specs = model.source->inputs();
    for (const int64_t batch : batches_for(request, specs)) {
      InputSizes sizes = input_sizes(specs, request.dims, batch);
      if (!sizes.missing.empty()) refuse_missing_sizes(sizes.missing);
      MadeInputs made = make_inputs(*model.source, sizes.binding, kSeed);
      report.inputs = inputs_of(specs, made);
      loads.push_back({batch, std::move(sizes.binding), std::move(made.tensors)});
    }
  }
  for (const Load& load : loads)
    for (const int64_t count : threads) {
      if (!request.threads.empty()) set_threads(fmt::format("{}", count), "--threads");
      report.results.push_back(SessionBench(request, load, static_cast<int>(count)).run());
    }
  return report;
}

double output_difference(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  check(got.size() == expected.size(),
        "the outputs are {}, and those of the other {}",
        got.size(),
        expected.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor &a = got[i], &b = expected[i];
    check(a.type().shape == b.type().shape,
          "output {} is {}, and that of the other {}",
          i,
          to_string(a.type()),
          to_string(b.type()));
    double magnitude = 0, difference = 0;
    for (int64_t k = 0; k < a.elements(); ++k) {
      const double x = a.at(k), y = b.at(k);
      if (std::isfinite(y)) magnitude = std::max(magnitude, std::abs(y));
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      const double gap = std::abs(x - y);
      difference =
          std::isnan(gap) ? std::numeric_limits<double>::infinity() : std::max(difference, gap);
    }
    if (difference > 0) worst = std::max(worst, difference / magnitude);
  }
  return worst;
}

}  // namespace ridge
