#include "ridge/tune/engine/offers.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/train/device_memory.h"
#include "ridge/train/process_memory.h"
#include "ridge/tune/engine/part_meter.h"

namespace ridge {
namespace {

// Plans of a candidate that are in memory at the same time: while it is timed, one beside the best,
// and while it is guarded two more in another process.
constexpr double kPlansAtOnce = 3;

// How many times the batch could grow within free memory.
double batch_room(const VariantFacts& facts) {
  const auto growing = static_cast<double>(facts.planned_bytes - facts.state_bytes);
  const auto free = static_cast<double>(facts.free_device_bytes.value_or(available_bytes()));
  if (free <= 0 || growing <= 0) return kMostGrowth;
  return (free / kPlansAtOnce - static_cast<double>(facts.state_bytes)) / growing;
}

// The name of a change among all of a run: its technique and the values that it sets.
std::string key_of(const Technique& technique, const Proposal& proposal) {
  std::string key(technique.name);
  for (const ConfigFlag& change : proposal.changes)
    key += fmt::format(" {}={}", change.key, change.value);
  return key;
}

// "cpu.jit is set by --set": who set a key that the changes would set, other than a recipe; empty
// where nobody did.
std::string who_set(const std::vector<ConfigFlag>& changes, const OpenConfig& best) {
  const ConfigOrigins& origins = best.resolved().loaded.origins;
  for (const ConfigFlag& change : changes) {
    const auto origin = origins.find(change.key);
    if (origin != origins.end() && origin->second.source > Source::kRecipe)
      return fmt::format("{} is set by {}", change.key, origin->second.where);
    for (const SettingRow& row : setting_rows()) {
      if (row.name != change.key) continue;
      const Settings::Origin setting = best.resolved().settings->origin(change.key);
      if (setting.source > Source::kRecipe)
        return fmt::format("{} is set by {}", change.key, setting.where);
    }
  }
  return {};
}

bool is_set_by(const std::vector<ConfigFlag>& flags, const std::vector<ConfigFlag>& changes) {
  return std::ranges::any_of(flags, [&](const ConfigFlag& flag) {
    return std::ranges::find(changes, flag.key, &ConfigFlag::key) != changes.end();
  });
}

// Why a part of a step is left as it is: "loading costs no more".
std::string costs_no_more(Affects affects, const StepCosts& costs) {
  switch (affects) {
    case Affects::kLoading:
      return "loading costs no more";
    case Affects::kLaunching:
      return "launches cost no more";
    case Affects::kReporting:
      return fmt::format(
          "reporting costs {:.2g} ms of {:.3g} ms", 1e3 * costs.report, 1e3 * costs.step);
    case Affects::kBatch:
    case Affects::kComputing:
      break;
  }
  return "computing costs no more";
}

// Whether a choice among more kernels has picked the same ones.
bool keeps_kernels(const Offer& offer, const OpenConfig& best, const OpenConfig& candidate) {
  return offer.proposal.changes[0].key == "train.kernels" &&
         candidate.facts().plan_hash == best.facts().plan_hash;
}

}  // namespace

Situation situation_of(const OpenConfig& best,
                       int cpus,
                       bool allow_trajectory,
                       int64_t fewest_parts,
                       const std::string& limit_text) {
  const TrainConfig& config = best.config();
  const VariantFacts& facts = best.facts();
  const auto steps_per_epoch = static_cast<double>(facts.steps_per_epoch);
  return {.config = config,
          .settings = *best.resolved().settings,
          .cpus = cpus,
          .epochs = config.train.steps > 0
                        ? static_cast<double>(config.train.steps) / steps_per_epoch
                        : static_cast<double>(config.train.epochs),
          .epoch_samples = facts.epoch_samples,
          .epoch_steps = facts.steps_per_epoch,
          .batch_room = batch_room(facts),
          .allow_trajectory = allow_trajectory,
          .micro = facts.micro,
          .token_growth = facts.token_growth,
          .fewest_parts = fewest_parts,
          .free_device_mib = memory_for_plan(facts.free_device_bytes.value_or(0)) >> 20,
          .memory = limit_text};
}

size_t OfferList::id_of(const Technique& technique, Proposal proposal) {
  std::string key = key_of(technique, proposal);
  const auto known = std::ranges::find(offers_, key, &Offer::key);
  if (known != offers_.end()) return static_cast<size_t>(known - offers_.begin());
  offers_.push_back(
      {.technique = &technique, .proposal = std::move(proposal), .key = std::move(key)});
  return offers_.size() - 1;
}

std::vector<Change> OfferList::changes(std::span<const Change> kept,
                                       const Situation& situation,
                                       const OpenConfig& best) {
  std::vector<Change> changes;
  for (const Technique& technique : techniques_) {
    // A technique that was kept would only take back its own change.
    if (std::ranges::find(kept, technique.name, &Change::technique) != kept.end()) continue;
    Proposals proposals = technique.propose(situation);
    std::vector<size_t> ids;
    for (Proposal& proposal : proposals.tries) ids.push_back(id_of(technique, std::move(proposal)));
    for (size_t id = 0; id < offers_.size(); ++id)
      if (std::ranges::find(ids, id) != ids.end() ||
          (offers_[id].technique == &technique && offers_[id].stays()))
        changes.push_back(change_of(id, situation, best));
    if (ids.empty())
      changes.push_back(
          {.technique = std::string(technique.name),
           .key = std::string(technique.name),
           .settled = proposals.reason,
           .settled_as = proposals.is_done ? TrialVerdict::kKept : TrialVerdict::kNotTried});
  }
  return changes;
}

Change OfferList::change_of(size_t id, const Situation& situation, const OpenConfig& best) const {
  const Offer& offer = offers_[id];
  Change change{.technique = std::string(offer.technique->name),
                .key = offer.key,
                .text = change_text(offer.proposal.changes, situation),
                .hypothesis = offer.proposal.hypothesis,
                .semantic_class = offer.proposal.semantic_class,
                .id = id,
                .loads = offer.loads(),
                .settled = who_set(offer.proposal.changes, best)};
  // The environment reaches the workers too: only a flag can be left out to measure it.
  change.is_foreseen = !change.settled.empty() && is_set_by(flags_, offer.proposal.changes);
  foresee(change);
  return change;
}

void OfferList::measure(Change& change, OpenConfig& best, OpenConfig& candidate) {
  Offer& offer = offers_[change.id];
  if (keeps_kernels(offer, best, candidate)) return;  // refusal() says so
  meter_.measure(offer, best, candidate);
  foresee(change);
}

std::string OfferList::refusal(const Change& change,
                               const OpenConfig& best,
                               const OpenConfig& candidate) const {
  const Offer& offer = offers_[change.id];
  if (keeps_kernels(offer, best, candidate))
    return "the plan stays as it is: no kernel with other bits is faster";
  // A limit of memory may ask for more micro-batches than are proposed.
  const int64_t micro = candidate.facts().micro;
  for (const ConfigFlag& flag : offer.proposal.changes)
    if (flag.key == "train.micro" && flag.value != fmt::format("{}", micro))
      return fmt::format("the limit of memory asks for {} micro-batches", micro);
  return {};
}

// Fills in ceiling and prediction.
void OfferList::foresee(Change& change) const {
  const Offer& offer = offers_[change.id];
  change.ceiling = meter_.ceiling_of(offer);
  change.ceiling_text = fmt::format("ceiling {:.2f}: {}",
                                    *change.ceiling,
                                    costs_no_more(offer.technique->affects, meter_.costs()));
  if (offer.step) change.predicted = meter_.predict(offer);
  change.needs_measurement = !offer.step || offer.is_stale;
}

void OfferList::mend(const Change& change, const std::vector<std::string>& f32_modules) {
  Offer mended = offers_[change.id];
  if (mended.is_mended) return;
  mended.proposal.changes.push_back(
      {"train.f32_modules", fmt::format("{}", fmt::join(f32_modules, ",")), "the guard"});
  mended.proposal.hypothesis += "; the guard passes it with some modules in f32";
  mended.key = key_of(*mended.technique, mended.proposal);
  mended.is_mended = mended.is_stale = true;
  offers_.push_back(std::move(mended));
}

void OfferList::note_kept(bool loads) {
  for (Offer& offer : offers_)
    if (offer.loads() == loads) offer.is_stale = true;
}

}  // namespace ridge
