#include "ridge/tune/engine/replay.h"

#include <algorithm>
#include <memory>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/tune/engine/resolved_config.h"
#include "ridge/tune/engine/worker.h"

namespace ridge {
namespace {

constexpr int64_t kEpoch = 2;

constexpr int64_t kLeastPairs = 12;

// Of all blocks, where there is four times as much.
constexpr double kLeastSeconds = 8;

std::unique_ptr<WorkerProcess> open(const ReplayRequest& request,
                                    const WorkerOptions& options,
                                    const std::string& recipe) {
  const Recipe changes = recipe.empty() ? Recipe{} : parse_recipe(recipe, "the ledger's recipe");
  const ResolvedConfig config = resolve_config(request.config_text, request.config_name, changes);
  return std::make_unique<WorkerProcess>(options, config.toml, kEpoch);
}

}  // namespace

TrialResult replay(const TrialRecord& record, const ReplayRequest& request) {
  check(!record.recipe.empty() && record.recipe != record.recipe_before,
        "trial {} ({}) changed nothing: there is nothing to prove",
        record.number,
        record.technique);
  const int64_t until = now_ns() + static_cast<int64_t>(request.seconds * 1e9);
  // A block that has begun is waited for.
  const WorkerOptions options{.program = request.program, .deadline_ns = until + 5'000'000'000};
  try {
    const auto before = open(request, options, record.recipe_before);
    const auto after = open(request, options, record.recipe);
    TrialOptions trial = trial_until(until, request.seed);
    trial.judge = record.judge;
    trial.work = work_ratio(before->facts(), after->facts());
    trial.least_pairs = kLeastPairs;
    trial.least_seconds = std::min(kLeastSeconds, request.seconds / 4);
    trial.least_steps = record.block_steps;
    return compare(*before, *after, trial);
  } catch (const WorkerFailed& failure) {
    throw UserError(fmt::format("trial {} cannot be run again: {}", record.number, failure.what()));
  } catch (const TrialStopped& stop) {
    throw UserError(fmt::format("trial {} was not proven again: {}", record.number, stop.what()),
                    "give it more time with --budget");
  }
}

}  // namespace ridge
