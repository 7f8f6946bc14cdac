#include "ridge/run/tuner.h"

#include <algorithm>

#include "ridge/base/html/markup.h"
#include "ridge/base/stats.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/signature.h"
#include "ridge/graph/text.h"
#include "ridge/run/compare.h"
#include "ridge/run/node_bench.h"

namespace ridge {
namespace {

// A later candidate has to be this much faster, and to be faster in this share of the rounds.
constexpr double kTie = 0.97;
constexpr double kShareOfRounds = 0.75;

// Work that the reference, plain loops on one thread, does in some milliseconds.
constexpr double kReferenceFlops = 4e6;
constexpr double kReferenceBytes = 4e6;

// The reason why a candidate is not considered; empty: it may be picked. An expanded node runs op
// by op; where there is a kernel for it, nobody wants that.
std::string why_not(const std::vector<Choice>& choices, size_t i, KernelRange range) {
  const size_t base = untimed_choice(choices, range);
  if (i == base) return {};
  if (choices[i].name == kExpandedChoice) return "op by op";
  if (choices[i].bits == choices[base].bits) return {};
  return range == KernelRange::kSameBits ? "other bits" : "";
}

// The plain form of a fused body has the bits of its first kernel, and its ops were checked one by
// one: only where others compete is there something to hold against the reference.
bool is_checked(const Node& node, const std::vector<Choice>& choices, KernelRange range) {
  if (!node.is<Fused>() && !node.is<FusedEach>()) return true;
  const int bits = choices[untimed_choice(choices, range)].bits;
  for (size_t i = 0; i < choices.size(); ++i)
    if (choices[i].bits != bits && why_not(choices, i, range).empty()) return true;
  return false;
}

bool is_small(const Node& node) {
  const Cost cost = node.op->cost(node.input_types(), node.outputs);
  return cost.flops <= kReferenceFlops && cost.bytes <= kReferenceBytes;
}

// Why a result of a large node is wrong; empty where it is not. Both may be off by what the table
// allows.
std::string large_difference(const Node& node,
                             const NamedTensors& got,
                             const NamedTensors& want,
                             const NamedTensors& magnitudes) {
  for (const auto& [index, tensor] : want) {
    const auto terms = magnitudes.find(index);
    const std::string text = difference(got.at(index),
                                        tensor,
                                        2 * tolerance(node, tensor.type().dtype),
                                        terms == magnitudes.end() ? nullptr : &terms->second);
    if (!text.empty()) return "wrong: " + text;
  }
  return {};
}

// The candidates of a node, which are let in one by one as they turn out to be right.
class Contest {
 public:
  Contest(const Node& node,
          const std::vector<Choice>& choices,
          KernelRange range,
          Backend& backend,
          Backend& reference,
          int64_t (*now)())
      : node_(node),
        choices_(choices),
        range_(range),
        backend_(backend),
        bench_(node, backend, now) {
    if (!is_small(node) || !is_checked(node, choices, range)) return;
    const Graph lone = lone_node(node);
    const NamedTensors operands = bench_.operands();
    wrongs_ =
        choice_differences(lone, operands, evaluate(lone, reference, operands), backend, reference);
  }

  /// Empty where candidate `i` is to be timed, else why not. The others are held against the first
  /// that is let in. It has to be right where it claims the bits of the CPU, and has to run where
  /// these are in demand.
  std::string admit(size_t i) {
    const bool is_first = admitted_.empty();
    const bool is_equal = !is_first && choices_[i].bits == choices_[admitted_[0]].bits;
    if (!is_equal && is_wrong(i)) {
      const std::string note = refused(i, "wrong: " + wrongs_[i]);
      if (is_first && !choices_[i].other_bits) fail();
      return note;
    }
    NamedTensors results;
    try {
      results = run(i);
    } catch (const UserError& error) {
      // A library may refuse what it offered. What ails the device itself shows in the next call.
      if (range_ == KernelRange::kSameBits) throw;
      if (failure_ == nullptr) failure_ = std::current_exception();
      return refused(i, std::string(kCannotRun) + error.message());
    }
    std::string problem;
    if (!is_equal && !wrongs_.empty())
      problem = wrongs_[i];  // it ran this time, and once it did not
    else if (is_equal)
      check_internal(bit_difference(first_, results).empty(),
                     "choice '{}' for {} has other bits than '{}'",
                     choices_[i].name,
                     print(node_),
                     choices_[admitted_[0]].name);
    else if (!is_first)
      problem = difference_from_first(results);
    if (!problem.empty()) {
      bench_.drop_last();
      return refused(i, problem);
    }
    if (is_first) first_ = std::move(results);
    admitted_.push_back(i);
    return {};
  }

  /// Throws why none was let in: the first error of a kernel that could not run, else
  /// InternalError.
  [[noreturn]] void fail() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    throw InternalError(fmt::format(
        "no kernel for {} on '{}' serves: {}", print(node_), backend_.name(), last_problem_));
  }

  /// Those that were let in, in their order, and the seconds of their rounds.
  const std::vector<size_t>& admitted() const { return admitted_; }
  std::vector<std::vector<double>> time() { return bench_.time(); }

 private:
  // A candidate that could not run in the comparison with the reference is tried again, for its
  // error.
  bool is_wrong(size_t i) const {
    return !wrongs_.empty() && !wrongs_[i].empty() && !wrongs_[i].starts_with(kCannotRun);
  }

  // The results of a candidate, which stays in the bench unless it throws.
  NamedTensors run(size_t i) {
    bench_.add(backend_.instantiate(node_, i));
    try {
      return bench_.results(admitted_.size());
    } catch (...) {
      bench_.drop_last();
      throw;
    }
  }

  std::string difference_from_first(const NamedTensors& results) {
    if (magnitudes_.empty() && sums_terms(*node_.op)) magnitudes_ = bench_.results_of_magnitudes(0);
    return large_difference(node_, results, first_, magnitudes_);
  }

  std::string refused(size_t i, const std::string& problem) {
    last_problem_ = fmt::format("'{}' {}", choices_[i].name, problem);
    return plain_line(problem);
  }

  const Node& node_;
  const std::vector<Choice>& choices_;
  const KernelRange range_;
  Backend& backend_;
  NodeBench bench_;
  std::vector<std::string> wrongs_;  ///< By candidate; none where the reference takes too long.
  NamedTensors first_, magnitudes_;  ///< The results of the candidate that is admitted first.
  std::vector<size_t> admitted_;
  std::exception_ptr failure_;  ///< The first error of a kernel that could not run.
  std::string last_problem_;
};

bool is_faster(const std::vector<double>& later, const std::vector<double>& earlier) {
  std::vector<double> ratios;
  for (size_t i = 0; i < later.size(); ++i) ratios.push_back(later[i] / earlier[i]);
  const auto wins = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r < 1; });
  return median(ratios) < kTie &&
         static_cast<double>(wins) >= kShareOfRounds * static_cast<double>(ratios.size());
}

// The same node in another range is another measurement.
std::string key_in(const Node& node, KernelRange range) {
  return (range == KernelRange::kSameBits ? "" : "any bits: ") + tuning_key(node);
}

int64_t bench_bytes(const Node& node) {
  int64_t bytes = 0;
  for (const TensorType& type : node.input_types()) bytes += type.bytes();
  for (const TensorType& type : node.outputs) bytes += type.bytes();
  return bytes;
}

NodeTimes not_timed(const std::vector<Choice>& choices, KernelRange range, const std::string& why) {
  NodeTimes times{.candidates = {}, .pick = untimed_choice(choices, range)};
  for (const Choice& choice : choices)
    times.candidates.push_back({.name = choice.name, .seconds = 0, .note = "not timed: " + why});
  return times;
}

NodeTimes too_large(const Node& node, const std::vector<Choice>& choices, KernelRange range) {
  const double gigabytes = static_cast<double>(bench_bytes(node)) * 1e-9;
  return not_timed(choices, range, fmt::format("operands and results take {:.1f} GB", gigabytes));
}

}  // namespace

std::string tuning_key(const Node& node) { return signature(node); }

size_t untimed_choice(const std::vector<Choice>& choices, KernelRange range) {
  return range == KernelRange::kSameBits ? same_bits_choice(choices) : 0;
}

Tuner::Tuner(Backend& backend, Backend& reference, ChoiceCache& cache, TunerOptions options)
    : backend_(backend), reference_(reference), cache_(cache), options_(options) {}

bool Tuner::is_too_large(const Node& node) const {
  return backend_.is_host() && bench_bytes(node) > options_.most_host_bytes;
}

NodeTimes Tuner::measure(const Node& node, const std::vector<Choice>& choices, KernelRange range) {
  Contest contest(node, choices, range, backend_, reference_, options_.now);
  NodeTimes times;
  for (size_t i = 0; i < choices.size(); ++i) {
    std::string note = why_not(choices, i, range);
    if (note.empty()) note = contest.admit(i);
    times.candidates.push_back({.name = choices[i].name, .seconds = 0, .note = std::move(note)});
  }
  const std::vector<size_t>& timed = contest.admitted();
  if (timed.empty()) contest.fail();
  const auto seconds = contest.time();
  size_t best = 0;
  for (size_t i = 0; i < timed.size(); ++i) {
    times.candidates[timed[i]].seconds = median(seconds[i]);
    if (i > 0 && is_faster(seconds[i], seconds[best])) best = i;
  }
  times.pick = timed[best];
  return times;
}

NodeTimes Tuner::measure_in_free_memory(const std::string& key,
                                        const Node& node,
                                        const std::vector<Choice>& choices,
                                        KernelRange range) {
  try {
    NodeTimes times = measure(node, choices, range);
    if (std::ranges::none_of(times.candidates, [](const CandidateTime& each) {
          return each.note.starts_with(kCannotRun);
        }))
      cache_.keep(key, times);
    ++timed_;
    return times;
  } catch (const OutOfMemory&) {
    // The plan decides whether the node fits into memory in the run itself.
    return too_large(node, choices, range);
  }
}

size_t Tuner::choose(const Node& node, const std::vector<Choice>& choices, KernelRange range) {
  size_t eligible = 0;
  for (size_t i = 0; i < choices.size(); ++i)
    eligible += why_not(choices, i, range).empty() ? 1 : 0;
  if (eligible < 2 && !options_.time_all) return untimed_choice(choices, range);
  std::string key = key_in(node, range);
  if (const auto known = known_.find(key); known != known_.end()) return known->second.pick;
  NodeTimes times;
  const bool is_kept = cache_.find(key, times) && times.candidates.size() == choices.size() &&
                       std::equal(choices.begin(),
                                  choices.end(),
                                  times.candidates.begin(),
                                  [](const auto& a, const auto& b) { return a.name == b.name; }) &&
                       why_not(choices, times.pick, range).empty();
  if (is_kept) {
    ++cached_;
  } else if (!options_.times) {
    times = not_timed(choices, range, "nothing is kept of it");
  } else if (is_too_large(node)) {
    times = too_large(node, choices, range);
  } else {
    times = measure_in_free_memory(key, node, choices, range);
  }
  return known_.emplace(std::move(key), std::move(times)).first->second.pick;
}

const NodeTimes* Tuner::times(const Node& node, KernelRange range) const {
  const auto known = known_.find(key_in(node, range));
  return known == known_.end() ? nullptr : &known->second;
}

}  // namespace ridge
