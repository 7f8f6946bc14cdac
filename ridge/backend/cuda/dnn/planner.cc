#include "ridge/backend/cuda/dnn/planner.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/signature.h"

namespace ridge::cuda {
namespace {

// Each has a handle, which takes memory of the device.
constexpr size_t kMostStates = 8;

}  // namespace

std::vector<DnnChoice> DnnPlanner::choices(const Node& node) {
  if (states_[0] == nullptr || !is_planned_by_dnn(node)) return {};
  const std::string key = signature(node);
  if (!waiting_.contains(key)) plan_all(node);
  auto own = waiting_.extract(key);
  asked_.insert(key);
  if (own.mapped().error != nullptr) try {
      std::rethrow_exception(own.mapped().error);
    } catch (const DnnError& error) {
      if (!error.is_failed_plan()) throw;
      report(node, error);
    }
  return std::move(own.mapped().choices);
}

void DnnPlanner::report(const Node& node, const DnnError& error) {
  if (!reported_.insert(error.message()).second) return;
  const bool is_full = error.result() == DnnResult::kDeviceAllocationFailed;
  note_(fmt::format(
      "{} at site '{}' runs without cuDNN, as will others that it fails to plan so: "
      "{}; {}",
      node.op->name(),
      node.site.name,
      error.message(),
      is_full ? error.fix() : "another cuDNN 9, named in RIDGE_CUDNN, may have a plan"));
}

void DnnPlanner::plan_all(const Node& first) {
  // Each signature once.
  std::map<std::string, const Node*> nodes{{signature(first), &first}};
  for (const auto& node : first.graph->nodes()) {
    if (!is_planned_by_dnn(*node)) continue;
    std::string key = signature(*node);
    if (!asked_.contains(key) && !waiting_.contains(key)) nodes.emplace(std::move(key), node.get());
  }
  const size_t threads = std::min({nodes.size(), kMostStates, static_cast<size_t>(num_threads())});
  while (states_.size() < threads) states_.push_back(states_[0]->for_another_thread());
  std::vector<std::pair<const Node*, Planned*>> work;
  for (const auto& [key, node] : nodes) work.emplace_back(node, &waiting_[key]);
  std::atomic<size_t> next = 0;
  parallel_for(static_cast<int64_t>(threads), 1, [&](int64_t begin, int64_t end) {
    for (auto thread = static_cast<size_t>(begin); thread < static_cast<size_t>(end); ++thread)
      for (size_t i = next++; i < work.size(); i = next++)
        plan(*work[i].first, states_[thread], *work[i].second);
  });
}

void DnnPlanner::plan(const Node& node,
                      const std::shared_ptr<const Dnn>& state,
                      Planned& planned) const {
  try {
    planned.choices = dnn_choices(*state, node);
    for (DnnChoice& each : planned.choices) each.planned_by = state;
  } catch (...) {
    planned.error = std::current_exception();
  }
}

}  // namespace ridge::cuda
