#include "ridge/tune/engine/offers.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/train/device_memory.h"
#include "ridge/train/process_memory.h"

namespace ridge {
namespace {

// Plans of a candidate that are in memory at the same time: while it is timed, one beside the best,
// and while it is guarded two more in another process.
constexpr double kPlansAtOnce = 3;

// A ceiling is measured too.
constexpr double kCeilingNoise = 1.03;

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

// The best configuration so far as techniques see it.
Situation OfferList::situation_of(OpenConfig& best, const std::string& limit_text) const {
  const TrainConfig& config = best.config();
  const VariantFacts& facts = best.facts();
  const auto steps_per_epoch = static_cast<double>(facts.steps_per_epoch);
  // Only where there are parts to do without.
  const bool may_have_fewer =
      facts.micro > 1 && facts.free_device_bytes && request_.memory_bytes == 0;
  return {.config = config,
          .settings = *best.resolved().settings,
          .cpus = cpus_,
          .epochs = config.train.steps > 0
                        ? static_cast<double>(config.train.steps) / steps_per_epoch
                        : static_cast<double>(config.train.epochs),
          .epoch_samples = facts.epoch_samples,
          .epoch_steps = facts.steps_per_epoch,
          .batch_room = batch_room(facts),
          .allow_trajectory = request_.loop.allow_trajectory,
          .micro = facts.micro,
          .token_growth = facts.token_growth,
          .fewest_parts = may_have_fewer ? best.fewest_parts() : 0,
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
                                       OpenConfig& best,
                                       const std::string& limit_text) {
  const Situation situation = situation_of(best, limit_text);
  std::vector<Change> changes;
  for (const Technique& technique : request_.techniques) {
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
  change.is_foreseen = !change.settled.empty() && is_set_by(request_.flags, offer.proposal.changes);
  foresee(change, best);
  return change;
}

void OfferList::measure(Change& change, OpenConfig& best, OpenConfig& candidate) {
  Offer& offer = offers_[change.id];
  if (keeps_kernels(offer, best, candidate)) return;  // refusal() says so
  offer.step = meter_.measure(best, candidate, offer.loads());
  offer.is_stale = false;
  foresee(change, best);
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

// The most that the offer could gain.
double OfferList::ceiling_of(const Offer& offer, const OpenConfig& best) const {
  const StepCosts& costs = meter_.costs();
  switch (offer.technique->affects) {
    case Affects::kLoading:
      return loading_ceiling(costs);
    case Affects::kLaunching:
      if (meter_.batch()) return launching_ceiling(costs, *meter_.batch(), best.facts().micro);
      break;
    case Affects::kReporting:
      return reporting_ceiling(costs);
    case Affects::kBatch:
      return batch_ceiling(costs, kMostGrowth);
    case Affects::kComputing:
      break;
  }
  return computing_ceiling(costs);
}

// After the other part of the step has changed, the prediction follows from the same measurement.
SpeedRange OfferList::predict(const Offer& offer, double ceiling) const {
  StepChange change = *offer.step;
  if (offer.loads())
    change.threads_after = meter_.costs().threads;
  else
    change.workers_after = meter_.costs().workers;
  // No change takes away more than its part, whatever the noise of that part.
  const double most = kCeilingNoise * ceiling;
  const SpeedRange range = predicted_speedup(meter_.costs(), change, cpus_);
  return {.low = std::min(range.low, most), .high = std::min(range.high, most)};
}

// Fills in ceiling and prediction.
void OfferList::foresee(Change& change, const OpenConfig& best) const {
  const Offer& offer = offers_[change.id];
  change.ceiling = ceiling_of(offer, best);
  change.ceiling_text = fmt::format("ceiling {:.2f}: {}",
                                    *change.ceiling,
                                    costs_no_more(offer.technique->affects, meter_.costs()));
  if (offer.step) change.predicted = predict(offer, *change.ceiling);
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
