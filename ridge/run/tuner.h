// Picks kernels by timing them, once. Another machine may pick others, so the bits of a tuned
// program belong to its plan (plan_hash()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/base/clock.h"
#include "ridge/graph/graph.h"
#include "ridge/run/choice_cache.h"

namespace ridge {

/// The key of all that a kernel's time depends on: op, fields, types of operands and results. Sites
/// do not count, so the layers of a model share one measurement.
std::string tuning_key(const Node& node);

/// Which candidates of a node the tuner may pick.
enum class KernelRange : uint8_t {
  /// Those with the CPU's bits, or, where none has them, with the bits of the first: a pick changes
  /// speed and nothing else.
  kSameBits,
  kAnyBits,  ///< All that agree with the reference: a pick changes the last bits too.
};

/// The candidate that serves where nothing is timed, and that the others are held against.
size_t untimed_choice(const std::vector<Choice>& choices, KernelRange range);

struct TunerOptions {
  /// Also time nodes that leave no choice: for reports.
  bool time_all = false;
  /// Time nodes that are not in the cache; else they get untimed_choice().
  bool times = true;
  int64_t (*now)() = now_ns;  ///< The clock, in ns.
  /// A node whose operands and results take more of the host's memory is not timed: a configuration
  /// may be far larger than the machine on which it is inspected.
  int64_t most_host_bytes = int64_t{4} << 30;
};

/// The tuner times the candidates of a node that are in range. Before that it checks them: each
/// that has the bits of the first against those; all others, and the first, against `reference`,
/// or, where the node is too large for that, against the first, by the tolerance table. A fused
/// body is a chain of ops whose errors add up: it may err twice as much as it does op by op. One
/// that is wrong or cannot run is not timed, and its note says why; in kSameBits, where the first
/// has to serve, that is an error. For a node that is too large to be timed, on the host or for
/// what the device has free, untimed_choice() is taken. Candidates within 3 % of an earlier one
/// lose to it.
class Tuner {
 public:
  /// Backends and cache must outlive it.
  Tuner(Backend& backend, Backend& reference, ChoiceCache& cache, TunerOptions options = {});

  /// The number of the candidate to use. InternalError when no candidate, or in kSameBits
  /// untimed_choice(), computes what the reference does; UserError when none can run.
  size_t choose(const Node& node,
                const std::vector<Choice>& choices,
                KernelRange range = KernelRange::kSameBits);

  /// The measured times of a node's candidates; null for a node that no choice was made for in that
  /// range.
  const NodeTimes* times(const Node& node, KernelRange range = KernelRange::kSameBits) const;

  size_t timed() const { return timed_; }    ///< Nodes measured by this object.
  size_t cached() const { return cached_; }  ///< Nodes that were found in the cache.

 private:
  bool is_too_large(const Node& node) const;
  NodeTimes measure(const Node& node, const std::vector<Choice>& choices, KernelRange range);
  /// Measures the node and keeps its times under `key`, unless a candidate could not run: it may
  /// run next time, for instance where other programs held the device's memory. Nothing is timed
  /// where the device has no free memory for operands and results.
  NodeTimes measure_in_free_memory(const std::string& key,
                                   const Node& node,
                                   const std::vector<Choice>& choices,
                                   KernelRange range);

  Backend& backend_;
  Backend& reference_;
  ChoiceCache& cache_;
  TunerOptions options_;
  std::map<std::string, NodeTimes> known_;
  size_t timed_ = 0, cached_ = 0;
};

}  // namespace ridge
