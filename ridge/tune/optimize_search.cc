// Which technique is tried, and what becomes of its trial.
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/train/process_memory.h"
#include "ridge/tune/optimizer.h"

namespace ridge {

namespace {

// Plans of a candidate that are in memory at the same time: while it is timed, one beside the best,
// and while it is guarded two more in another process.
constexpr double kPlansAtOnce = 3;

bool is_rejected_trajectory(const TrialRecord& record) {
  return record.semantic_class == SemanticClass::kTrajectory &&
         record.verdict == TrialVerdict::kGuardFailed;
}

double ceiling_of(Affects affects, const StepCosts& costs) {
  if (affects == Affects::kLoading) return loading_ceiling(costs);
  return affects == Affects::kBatch ? batch_ceiling(costs, kMostGrowth) : computing_ceiling(costs);
}

}  // namespace

double Optimizer::batch_room() const {
  const VariantFacts& facts = best_.worker->facts();
  const auto growing = static_cast<double>(facts.planned_bytes - facts.state_bytes);
  const auto free = static_cast<double>(available_bytes());
  if (free <= 0 || growing <= 0) return kMostGrowth;
  return (free / kPlansAtOnce - static_cast<double>(facts.state_bytes)) / growing;
}

Situation Optimizer::situation() const {
  const TrainConfig& config = best_.config.loaded.config;
  const auto steps_per_epoch = static_cast<double>(best_.worker->facts().steps_per_epoch);
  return {.config = config,
          .settings = *best_.config.settings,
          .cpus = cpus_,
          .epochs = config.train.steps > 0
                        ? static_cast<double>(config.train.steps) / steps_per_epoch
                        : static_cast<double>(config.train.epochs),
          .epoch_samples = best_.worker->facts().epoch_samples,
          .batch_room = batch_room(),
          .allow_trajectory = request_.allow_trajectory};
}

std::string Optimizer::who_set(const std::vector<ConfigFlag>& changes) const {
  for (const ConfigFlag& change : changes) {
    const auto origin = best_.config.loaded.origins.find(change.key);
    if (origin != best_.config.loaded.origins.end() && origin->second.source > Source::kRecipe)
      return fmt::format("{} is set by {}", change.key, origin->second.where);
    for (const SettingRow& row : setting_rows()) {
      if (row.name != change.key) continue;
      const Settings::Origin setting = best_.config.settings->origin(change.key);
      if (setting.source > Source::kRecipe)
        return fmt::format("{} is set by {}", change.key, setting.where);
    }
  }
  return {};
}

Proposals Optimizer::propose(const Technique& technique, TrialRecord& record) const {
  Proposals proposals = technique.propose(situation());
  if (proposals.tries.empty()) return proposals;
  record.ceiling = ceiling_of(technique.affects, best_.costs);
  if (request_.allow_trajectory) return proposals;
  const Proposal first = proposals.tries[0];
  std::erase_if(proposals.tries, [](const Proposal& proposal) {
    return proposal.semantic_class == SemanticClass::kTrajectory;
  });
  if (!proposals.tries.empty()) return proposals;
  record.change = change_text(first.changes, situation());
  record.semantic_class = first.semantic_class;
  record.hypothesis = first.hypothesis;
  proposals.reason = "changes the trajectory; allow it by --allow-trajectory";
  return proposals;
}

void Optimizer::try_technique(const Technique& technique) {
  const bool loads = technique.affects == Affects::kLoading;
  TrialRecord record = new_record(technique.name);
  const Proposals proposals = propose(technique, record);
  if (proposals.tries.empty())
    record.reason = proposals.reason;
  else if (search_is_over())
    record.reason = "the time for trials is over";
  else if (*record.ceiling < kWorthTrying)
    record.reason = fmt::format(
        "ceiling {:.2f}: {} costs no more", *record.ceiling, loads ? "loading" : "computing");
  if (!record.reason.empty()) return finish(std::move(record));
  for (const Proposal& proposal : proposals.tries) {
    TrialRecord trial = new_record(technique.name);
    trial.ceiling = record.ceiling;
    if (search_is_over()) return;
    try_proposal(technique, proposal, std::move(trial));
    // What follows goes further in the same direction: the guard would say so again.
    if (is_rejected_trajectory(result_.trials.back())) return;
  }
}

void Optimizer::try_proposal(const Technique& technique,
                             const Proposal& proposal,
                             TrialRecord record) {
  const int64_t start = now_ns();
  record.change = change_text(proposal.changes, situation());
  record.semantic_class = proposal.semantic_class;
  record.hypothesis = proposal.hypothesis;
  std::vector<ConfigFlag> mended;
  if (const std::string who = who_set(proposal.changes); !who.empty()) {
    record.reason = who;
    return finish(std::move(record));
  }
  try {
    run_trial(technique, proposal, record, mended);
  } catch (const WorkerFailed& error) {
    record.verdict = TrialVerdict::kFailed;
    record.reason = error.what();
  } catch (const UserError& error) {
    record.verdict = TrialVerdict::kFailed;
    record.reason = error.what();
  } catch (const TrialStopped& stop) {
    // Timed or not, it has not passed all that it would have to.
    record.verdict = record.pairs.empty() ? TrialVerdict::kNotTried : TrialVerdict::kGuardFailed;
    record.reason = record.pairs.empty() ? stop.what()
                                         : fmt::format("no verdict of the guard: {}", stop.what());
    finish(std::move(record));
    throw;
  }
  record.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  finish(std::move(record));
  if (mended.empty() || search_is_over()) return;
  Proposal again = proposal;
  again.changes.insert(again.changes.end(), mended.begin(), mended.end());
  again.hypothesis += "; the guard passes it with some modules in f32";
  try_proposal(technique, again, new_record(technique.name));
}

// Every technique has a record, whenever the loop ends.
void Optimizer::tell_not_tried(size_t first, const std::string& reason) {
  for (const Technique& technique : request_.techniques.subspan(first)) {
    if (!result_.trials.empty() && result_.trials.back().technique == technique.name) continue;
    TrialRecord record = new_record(technique.name);
    record.reason = reason;
    finish(std::move(record));
  }
}

}  // namespace ridge
