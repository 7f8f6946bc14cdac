#include "ridge/run/launches.h"

#include "ridge/base/trace/trace.h"

namespace ridge {
namespace {

// Runs a call of a kernel, whose error then names the site of the node.
template <typename Call>
void with_site(const PlanStep& step, const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}, at site '{}'", error.message(), step.site), error.fix());
  }
}

}  // namespace

void Launch::queue(Stream& stream) const {
  TraceScope scope(trace_name, "cpu_op");
  scope.set_arg("bytes", bytes);
  with_site(*step, [&] { kernel->launch(stream, {inputs, outputs, workspace}); });
}

Launches::Launches(const Graph& graph, const EntryPlan& plan, Backend& backend) {
  for (const PlanStep& step : plan.steps) {
    const Node& node = *graph.nodes().at(static_cast<size_t>(step.node));
    Launch launch;
    launch.kernel = step.is_packed ? backend.instantiate_packed(node, step.choice)
                                   : backend.instantiate(node, step.choice);
    launch.inputs.resize(step.inputs.size());
    launch.outputs.resize(step.outputs.size());
    launch.step = &step;
    launch.trace_name = intern_trace_name(step.site);
    for (const Place& place : step.inputs) launch.bytes += place.bytes;
    for (const Place& place : step.outputs) launch.bytes += place.bytes;
    all_.push_back(std::move(launch));
  }
}

void Launches::prepare() const {
  for (const Launch& launch : all_) with_site(*launch.step, [&] { launch.kernel->prepare(); });
}

void Launches::bind(FunctionRef<void*(const Place&)> address) {
  for (Launch& launch : all_) {
    const PlanStep& step = *launch.step;
    for (size_t i = 0; i < step.inputs.size(); ++i) launch.inputs[i] = address(step.inputs[i]);
    for (size_t i = 0; i < step.outputs.size(); ++i) launch.outputs[i] = address(step.outputs[i]);
    if (step.workspace.bytes > 0) launch.workspace = address(step.workspace);
  }
}

void Launches::set(const LaunchOperand& which, void* address) {
  Launch& launch = all_.at(which.step);
  if (which.is_result)
    launch.outputs.at(which.number) = address;
  else
    launch.inputs.at(which.number) = address;
}

}  // namespace ridge
