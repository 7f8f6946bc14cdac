// What the loop knows how to try. A technique looks at the configuration and says which values it
// would change; what that would gain is measured (prediction.h), never believed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/base/settings.h"
#include "ridge/config/text.h"

namespace ridge {

/// Where a change can make a difference: what has to be measured to predict it.
enum class Affects : uint8_t {
  kLoading,
  kComputing,
  kLaunching,  ///< Computing, by what each micro-batch costs whatever its size.
  kBatch,      ///< Computing; a sample takes as long to load.
  kReporting,  ///< Computing, by the report of a step.
};

/// A batch may grow by so much at most.
inline constexpr int64_t kMostGrowth = 4;
/// Less is not worth another training run.
inline constexpr double kWorthwhileGrowth = 1.1;

/// What a technique sees.
struct Situation {
  const TrainConfig& config;  ///< With the changes that were kept so far.
  const Settings& settings;
  int cpus = 1;               ///< That the process may use.
  double epochs = 1;          ///< That the whole run takes.
  int64_t epoch_samples = 0;  ///< That the steps of an epoch take together.
  int64_t epoch_steps = 0;
  double batch_room = kMostGrowth;  ///< Times that the batch could grow within free memory.
  /// Proposals of class kTrajectory may be tried; without it they are only listed.
  bool allow_trajectory = false;
  int64_t micro = 0;        ///< Parts of a step, after a limit of memory; 0: as configured.
  double token_growth = 1;  ///< Times the samples a step if it had room for batch * context tokens.
  /// Of a device with memory of its own: the fewest parts of a step that it has room for beside
  /// what it is compared with, and MiB of it that are free then; 0: unknown, or no such device.
  int64_t fewest_parts = 0, free_device_mib = 0;
  std::string memory = {};  ///< What a limit of memory made of the plan, in words.
};

/// Values to change, as one thing to try.
struct Proposal {
  std::vector<ConfigFlag> changes;
  SemanticClass semantic_class = SemanticClass::kBitIdentical;
  std::string hypothesis;  ///< Why it would help.
};

/// Nothing to try has a reason.
struct Proposals {
  std::vector<Proposal> tries;
  std::string reason;
  bool is_done = false;  ///< There is nothing to try because it was asked for: `reason` tells what.
};

struct Technique {
  std::string_view name;
  std::string_view what;  ///< In the words of the documentation.
  Affects affects;
  Proposals (*propose)(const Situation&);
};

/// All techniques, in the order in which they are tried: starvation first, then what a step costs
/// the host, precision and kernels, memory, and the loader again.
std::span<const Technique> techniques();

/// "loader.workers 0 -> 2, loader.prefetch 4 -> 8".
std::string change_text(const std::vector<ConfigFlag>& changes, const Situation& situation);

}  // namespace ridge
