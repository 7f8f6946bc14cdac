// The result of `ridge bench`, for people and as JSON ("ridge.bench/1").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/stats.h"
#include "ridge/graph/data_spec.h"
#include "ridge/infer/pick_counts.h"

namespace ridge {

struct Latency {
  int64_t runs = 0;
  double median_ms = 0, p99_ms = 0;
};

/// The seconds are those of one run at least.
Latency latency_of(const std::vector<double>& seconds);

/// Bytes. A plan holds arena and state, but for weights that are used where a file is mapped;
/// resident are these, too, where they were read, and what a runtime needs for itself.
struct BenchMemory {
  std::optional<int64_t> planned = {}, state = {}, arena = {};
  /// Growth of the process's resident memory at its peak, from before the load to the first result.
  std::optional<int64_t> resident = {};
};

/// The measurements of one side.
struct BenchSide {
  Latency latency;
  double first_ms = 0;  ///< From the file to the first result, in a fresh session.
  BenchMemory memory = {};
};

/// Another runtime, timed in turn with Ridge.
struct BenchPeer {
  std::string runtime, version;
  BenchSide side;
  int64_t pairs = 0;                                ///< Pairs of blocks that were judged.
  double ratio = 1;                                 ///< How many times as fast as it Ridge is.
  std::optional<ConfidenceInterval> interval = {};  ///< An interval of the ratio.
  double difference = 0;                            ///< See output_difference().
};

struct BenchResult {
  int64_t batch = 1;
  int threads = 1;
  int64_t instances = 1;  ///< Runs that went on at once, each of a batch: times are of all.
  Binding dims = {};
  PickCounts picks = {};  ///< Those timed by --tune, and those that were kept for what is measured.
  BenchSide ridge = {};
  std::optional<BenchPeer> peer = {};
};

struct BenchInput {
  std::string name, type;     ///< The type names dimensions: "i64[N,T]".
  std::string elements;       ///< "normal", "0 to 30521", "0 or 1".
  bool is_unbounded = false;  ///< 0 and 1 because the graph says nothing of them.
};

struct BenchReport {
  std::string model, device;
  double seconds = 0;  ///< Time of each result's runs.
  std::vector<BenchInput> inputs = {};
  std::vector<BenchResult> results = {};
};

std::string bench_text(const BenchReport& report);
/// One line of JSON.
std::string bench_json(const BenchReport& report);

}  // namespace ridge
