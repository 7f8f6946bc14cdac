#include "ridge/run/tuner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ridge/base/hash.h"
#include "ridge/base/stats.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/signature.h"
#include "ridge/graph/text.h"
#include "ridge/run/compare.h"

namespace ridge {
namespace {

// A later candidate has to be this much faster, and to be faster in this share of the rounds.
constexpr double kTie = 0.97;
constexpr double kShareOfRounds = 0.75;

// Work that the reference, plain loops on one thread, does in some milliseconds.
constexpr double kReferenceFlops = 4e6;
constexpr double kReferenceBytes = 4e6;

constexpr int64_t kRoundNs = 200'000;        // a round runs a kernel again until so much has passed
constexpr int64_t kCandidateNs = 8'000'000;  // what a candidate's rounds may take
constexpr size_t kFewestRounds = 5;
constexpr size_t kMostRounds = 21;

// Random numbers in [-1, 1); indices are 0, which every table has.
void fill(Tensor& tensor, uint64_t key) {
  const int64_t pattern = std::min<int64_t>(tensor.elements(), 4093);
  if (!is_float(tensor.type().dtype) && tensor.type().dtype != DType::kBool) return;
  for (int64_t i = 0; i < pattern; ++i) {
    const uint64_t word = hash64(fmt::format("{} {}", key, i));
    const double unit = static_cast<double>(word >> 11) * 0x1p-53;
    tensor.set(i, tensor.type().dtype == DType::kBool ? std::floor(2 * unit) : 2 * unit - 1);
  }
  auto* bytes = static_cast<std::byte*>(tensor.data());
  const size_t period = static_cast<size_t>(pattern) * size_of(tensor.type().dtype);
  for (size_t at = period; at < tensor.bytes(); at += period)
    std::memcpy(bytes + at, bytes, std::min(period, tensor.bytes() - at));
}

// A node by itself, with operands on the device.
class Bench {
 public:
  Bench(const Node& node, Backend& backend, int64_t (*now)())
      : backend_(backend), now_(now), stream_(backend.make_stream()) {
    for (const Value& input : node.inputs) {
      Tensor tensor(input.type());
      fill(tensor, operands_.size());
      memory_.emplace_back(backend, tensor.bytes());
      backend.copy_to_device(*stream_, memory_.back().get(), tensor.data(), tensor.bytes());
      stream_->synchronize();
      inputs_.push_back(memory_.back().get());
      operands_.emplace(fmt::format("{}", operands_.size()), std::move(tensor));
    }
    for (const TensorType& type : node.outputs) {
      memory_.emplace_back(backend, static_cast<size_t>(type.bytes()));
      outputs_.push_back(memory_.back().get());
      types_.push_back(type);
    }
  }

  const NamedTensors& operands() const { return operands_; }

  /// Adds a candidate to be run.
  void add(std::unique_ptr<NodeKernel> kernel) {
    workspaces_.emplace_back(backend_, std::max<size_t>(1, kernel->workspace_bytes()));
    kernels_.push_back(std::move(kernel));
  }

  NamedTensors results(size_t candidate) {
    for (size_t i = 0; i < types_.size(); ++i) {  // what a kernel leaves out shows
      const Tensor zeros(types_[i]);
      backend_.copy_to_device(*stream_, outputs_[i], zeros.data(), zeros.bytes());
      stream_->synchronize();
    }
    run(candidate);
    NamedTensors named;
    for (size_t i = 0; i < types_.size(); ++i) {
      Tensor tensor(types_[i]);
      backend_.copy_to_host(*stream_, tensor.data(), outputs_[i], tensor.bytes());
      stream_->synchronize();
      named.emplace(fmt::format("{}", i), std::move(tensor));
    }
    return named;
  }

  /// Seconds of one launch, by candidate and round. Candidates take turns.
  std::vector<std::vector<double>> time() {
    std::vector<int64_t> repeats(kernels_.size());
    int64_t longest = 1;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      run(i);
      const int64_t one = std::max<int64_t>(1, timed(i, 1));
      repeats[i] = std::clamp<int64_t>(kRoundNs / one, 1, 10000);
      longest = std::max(longest, one * repeats[i]);
    }
    const auto rounds =
        std::clamp(static_cast<size_t>(kCandidateNs / longest), kFewestRounds, kMostRounds);
    std::vector<std::vector<double>> seconds(kernels_.size());
    for (size_t round = 0; round < rounds; ++round)
      for (size_t i = 0; i < kernels_.size(); ++i)
        seconds[i].push_back(static_cast<double>(timed(i, repeats[i])) * 1e-9 /
                             static_cast<double>(repeats[i]));
    return seconds;
  }

 private:
  void run(size_t candidate) {
    kernels_[candidate]->launch(*stream_, {inputs_, outputs_, workspaces_[candidate].get()});
    stream_->synchronize();
  }
  int64_t timed(size_t candidate, int64_t repeats) {
    const int64_t start = now_();
    for (int64_t i = 0; i < repeats; ++i)
      kernels_[candidate]->launch(*stream_, {inputs_, outputs_, workspaces_[candidate].get()});
    stream_->synchronize();
    return now_() - start;
  }

  Backend& backend_;
  int64_t (*now_)();
  std::unique_ptr<Stream> stream_;
  NamedTensors operands_;
  std::vector<DeviceMemory> memory_, workspaces_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<TensorType> types_;
  std::vector<std::unique_ptr<NodeKernel>> kernels_;
};

// Those that may be picked: the first, and all with its bits. An expanded node runs op by op; where
// there is a kernel for it, nobody wants that.
bool is_eligible(const std::vector<Choice>& choices, size_t i) {
  return i == 0 || (choices[i].bits == choices[0].bits && choices[i].name != kExpandedChoice);
}

bool is_small(const Node& node) {
  const Cost cost = node.op->cost(node.input_types(), node.outputs);
  return cost.flops <= kReferenceFlops && cost.bytes <= kReferenceBytes;
}

// The first candidate against the reference. A fused body is a chain of ops, whose errors add up:
// its plain form has its bits, and its ops were checked one by one.
void check_first(const Node& node, const Bench& bench, Backend& backend, Backend& reference) {
  if (!is_small(node) || node.is<Fused>() || node.is<FusedEach>()) return;
  const Graph lone = lone_node(node);
  const NamedTensors want = evaluate(lone, reference, bench.operands());
  const auto lines = choice_differences(lone, bench.operands(), want, backend, reference);
  check_internal(lines[0].empty(),
                 "the kernel for {} on '{}' is wrong: {}",
                 print(node),
                 backend.name(),
                 lines[0]);
}

bool is_faster(const std::vector<double>& later, const std::vector<double>& earlier) {
  std::vector<double> ratios;
  for (size_t i = 0; i < later.size(); ++i) ratios.push_back(later[i] / earlier[i]);
  const auto wins = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r < 1; });
  return median(ratios) < kTie &&
         static_cast<double>(wins) >= kShareOfRounds * static_cast<double>(ratios.size());
}

}  // namespace

std::string tuning_key(const Node& node) { return signature(node); }

Tuner::Tuner(Backend& backend, Backend& reference, ChoiceCache& cache, TunerOptions options)
    : backend_(backend), reference_(reference), cache_(cache), options_(options) {}

NodeTimes Tuner::measure(const Node& node, const std::vector<Choice>& choices) {
  Bench bench(node, backend_, options_.now);
  check_first(node, bench, backend_, reference_);
  NodeTimes times;
  NamedTensors first;
  std::vector<size_t> timed;
  for (size_t i = 0; i < choices.size(); ++i) {
    times.candidates.push_back({.name = choices[i].name, .seconds = 0, .note = ""});
    if (!is_eligible(choices, i)) {
      times.candidates[i].note = choices[i].name == kExpandedChoice ? "op by op" : "other bits";
      continue;
    }
    bench.add(backend_.instantiate(node, i));
    NamedTensors results = bench.results(timed.size());
    timed.push_back(i);
    if (i == 0)
      first = std::move(results);
    else
      check_internal(bit_difference(first, results).empty(),
                     "choice '{}' for {} has other bits than '{}'",
                     choices[i].name,
                     print(node),
                     choices[0].name);
  }
  const auto seconds = bench.time();
  size_t best = 0;
  for (size_t i = 0; i < timed.size(); ++i) {
    times.candidates[timed[i]].seconds = median(seconds[i]);
    if (i > 0 && is_faster(seconds[i], seconds[best])) best = i;
  }
  times.pick = timed[best];
  return times;
}

size_t Tuner::choose(const Node& node, const std::vector<Choice>& choices) {
  size_t eligible = 0;
  for (size_t i = 0; i < choices.size(); ++i) eligible += is_eligible(choices, i);
  if (eligible < 2 && !options_.time_all) return 0;
  std::string key = tuning_key(node);
  if (const auto known = known_.find(key); known != known_.end()) return known->second.pick;
  NodeTimes times;
  const bool is_kept = cache_.find(key, times) && times.candidates.size() == choices.size() &&
                       std::equal(choices.begin(),
                                  choices.end(),
                                  times.candidates.begin(),
                                  [](const auto& a, const auto& b) { return a.name == b.name; });
  if (is_kept) {
    ++cached_;
  } else {
    times = measure(node, choices);
    cache_.keep(key, times);
    ++timed_;
  }
  return known_.emplace(std::move(key), std::move(times)).first->second.pick;
}

const NodeTimes* Tuner::times(const Node& node) const {
  const auto known = known_.find(tuning_key(node));
  return known == known_.end() ? nullptr : &known->second;
}

}  // namespace ridge
