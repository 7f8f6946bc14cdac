#include "ridge/tune/optimize.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "ridge/base/clock.h"
#include "ridge/base/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/base/machine.h"
#include "ridge/base/stats.h"
#include "ridge/train/stop.h"
#include "ridge/tune/optimizer.h"

namespace ridge {
namespace {

// Steps whose state is compared where a change must keep the bits.
constexpr int64_t kHashSteps = 2;

// Of a part that is measured alone.
constexpr double kPartSeconds = 0.08;
constexpr int kPartBlocks = 3;

// What is predicted to gain less is not tried.
constexpr double kWorthTrying = 1.02;

// Shares of the budget: the search ends here, and what is left belongs to the proof.
constexpr double kSearchShare = 0.65;

// Of a trial; what is predicted to gain more than kPromise at the least may take longer, what gains
// less at the most is over sooner.
constexpr double kShortTrialShare = 0.1, kTrialShare = 0.2, kLongTrialShare = 0.35;
constexpr double kPromise = 1.1;

constexpr int64_t kNoisePairs = 6, kProofPairs = 12;

constexpr double kProofConfidence = 0.95;

// Times that a plan is made for a limit, each with what the one before needed besides.
constexpr int kFits = 3;

// What the guard may take of the budget, as if every step took as long as the reference's.
constexpr double kGuardShare = 0.15;

double in_mebibytes(int64_t bytes) { return static_cast<double>(bytes) * 0x1p-20; }

PairRecord record_of(const Pair& pair) {
  const auto& outer = pair.before_outside ? pair.before : pair.after;
  const auto& inner = pair.before_outside ? pair.after : pair.before;
  return {.before_outside = pair.before_outside,
          .dropped = pair.dropped,
          .seconds = {outer[0].seconds, inner[0].seconds, inner[1].seconds, outer[1].seconds},
          .log_ratio = pair.log_ratio()};
}

void fill(TrialRecord& record, const TrialResult& trial, const JudgeOptions& judge) {
  record.judge = judge;
  record.block_steps = trial.steps;
  for (const Pair& pair : trial.pairs) record.pairs.push_back(record_of(pair));
  if (trial.interval)
    record.measured = {.low = std::exp(trial.interval->low),
                       .mid = std::exp(trial.gain),
                       .high = std::exp(trial.interval->high),
                       .confidence = trial.interval->confidence};
}

void fill(VariantSpeed& speed, int64_t batch, double seconds) {
  speed.step_ms = 1e3 * seconds;
  speed.samples_per_s = seconds > 0 ? static_cast<double>(batch) / seconds : 0;
}

double wait_share(const std::vector<Pair>& pairs, const Block (Pair::*blocks)[2]) {
  double waited = 0, seconds = 0;
  for (const Pair& pair : pairs)
    for (const Block& block : pair.*blocks) {
      waited += block.waited_seconds;
      seconds += block.seconds;
    }
  return seconds > 0 ? std::min(1.0, waited / seconds) : 0;
}

std::string open_reason(const TrialResult& trial) {
  return fmt::format(
      "no verdict after {} pairs{}",
      trial.pairs.size() - static_cast<size_t>(trial.dropped),
      trial.dropped > 0
          ? fmt::format(" ({} more were dropped: others took CPU time)", trial.dropped)
          : "");
}

}  // namespace

Optimizer::Optimizer(const OptimizeRequest& request, OptimizeObserver& observer)
    : request_(request), observer_(observer), start_(now_ns()), cpus_(usable_cpus()) {}

double Optimizer::seconds_left() const {
  return request_.budget_seconds - static_cast<double>(now_ns() - start_) * 1e-9;
}

// Two variants are opened for the proof, and their pairs are timed.
double Optimizer::proof_seconds() const {
  if (best_.worker == nullptr) return 0;
  const double pair = 4 * std::max(TrialOptions{}.block_seconds, 2 * best_.costs.step);
  return 2 * 1.5 * best_.worker->facts().open_seconds + 1.5 * kProofPairs * pair;
}

bool Optimizer::search_is_over() const {
  const double kept = std::max((1 - kSearchShare) * request_.budget_seconds, proof_seconds());
  return stop_requested() || seconds_left() < kept;
}

int64_t Optimizer::deadline(double seconds_from_now) const {
  return now_ns() + static_cast<int64_t>(std::max(0.0, seconds_from_now) * 1e9);
}

ResolvedConfig Optimizer::resolve(const Recipe& recipe) const {
  return resolve_config(request_.config_text, request_.config_name, recipe, request_.flags);
}

OpenVariant Optimizer::open(const Recipe& recipe, int64_t epoch) {
  OpenVariant variant;
  variant.recipe = recipe;
  variant.config = resolve(recipe);
  const WorkerOptions options{.program = request_.program, .deadline_ns = deadline(seconds_left())};
  variant.worker = std::make_unique<WorkerProcess>(options, variant.config.toml, epoch);
  variant.worker->run(kHashSteps);
  variant.state_hash = variant.worker->state_hash();
  const int64_t threads = variant.config.settings->get_int("threads");
  variant.costs.threads = threads == 0 ? cpus_ : threads;
  variant.costs.workers = variant.config.loaded.config.loader.workers;
  return variant;
}

// Blocks that are not too short for the clock; the first also warm the variant up.
int64_t Optimizer::part_steps(WorkerProcess& worker, StepKind kind) {
  int64_t steps = 1;
  while (worker.run(steps, kind).seconds < kPartSeconds / 2 && steps < int64_t{1} << 30) steps *= 2;
  return steps;
}

// Seconds of a step: the median of some blocks.
double Optimizer::measure(WorkerProcess& worker, StepKind kind, double* wait_share) {
  const int64_t steps = part_steps(worker, kind);
  std::vector<double> seconds;
  for (int i = 0; i < kPartBlocks; ++i) {
    const Block block = worker.run(steps, kind);
    seconds.push_back(block.seconds / static_cast<double>(steps));
    if (wait_share != nullptr) *wait_share = std::min(1.0, block.waited_seconds / block.seconds);
  }
  return median(seconds);
}

// The same of two variants in turn, so that what the machine does meanwhile meets both.
std::pair<double, double> Optimizer::measure_both(WorkerProcess& one,
                                                  WorkerProcess& other,
                                                  StepKind kind) {
  const int64_t one_steps = part_steps(one, kind), other_steps = part_steps(other, kind);
  std::vector<double> one_seconds, other_seconds;
  for (int i = 0; i < kPartBlocks; ++i) {
    one_seconds.push_back(one.run(one_steps, kind).seconds / static_cast<double>(one_steps));
    other_seconds.push_back(other.run(other_steps, kind).seconds /
                            static_cast<double>(other_steps));
  }
  return {median(one_seconds), median(other_seconds)};
}

void Optimizer::measure_costs(OpenVariant& variant) {
  variant.costs.step = measure(*variant.worker, StepKind::kTrain, &variant.costs.wait_share);
  variant.costs.compute = measure(*variant.worker, StepKind::kKept);
  variant.costs.load = measure(*variant.worker, StepKind::kLoad);
  variant.costs.host = measure(*variant.worker, StepKind::kNoKernel);
}

Situation Optimizer::situation() const {
  const TrainConfig& config = best_.config.loaded.config;
  const auto steps_per_epoch = static_cast<double>(best_.worker->facts().steps_per_epoch);
  return {.config = config,
          .settings = *best_.config.settings,
          .cpus = cpus_,
          .epochs = config.train.steps > 0
                        ? static_cast<double>(config.train.steps) / steps_per_epoch
                        : static_cast<double>(config.train.epochs)};
}

TrialOptions Optimizer::trial_options(double most_seconds) const {
  const int64_t until = deadline(std::min(most_seconds, seconds_left()));
  TrialOptions options;
  options.seed = request_.seed + result_.trials.size();
  options.cpus = cpus_;
  options.should_stop = [until] { return stop_requested() || now_ns() > until; };
  return options;
}

// A plan that keeps within the limit, whatever it costs: micro-batches and results made again. What
// the process needs besides (code, tables of kernels) is small, and known once it has run.
void Optimizer::fit_memory() {
  if (request_.memory_bytes == 0) return;
  const int64_t before = best_.worker->facts().planned_bytes;
  int64_t besides = best_.worker->facts().staging_bytes;
  for (int attempt = 0; attempt < kFits; ++attempt) {
    const int64_t mebibytes = (request_.memory_bytes - besides) >> 20;
    if (mebibytes < 1)
      throw UserError(fmt::format("--memory is {:.1f} MiB, and {:.1f} MiB of it are needed besides "
                                  "the plan: for batches that the loader stages, and code",
                                  in_mebibytes(request_.memory_bytes),
                                  in_mebibytes(besides)),
                      "give it more, or lower loader.prefetch");
    base_.set("train.memory_limit", fmt::format("{}", mebibytes));
    best_ = {};  // its memory, before that of the next is taken
    best_ = open(base_, 0);
    const int64_t over = best_.worker->measured_bytes() - request_.memory_bytes;
    if (over <= 0) break;
    besides += over + (int64_t{1} << 20);
  }
  observer_.on_message(
      fmt::format("memory: {:.1f} MiB planned, {:.1f} MiB measured, within {:.1f} MiB; "
                  "{:.1f} MiB were planned without the limit",
                  in_mebibytes(best_.worker->facts().planned_bytes),
                  in_mebibytes(best_.worker->measured_bytes()),
                  in_mebibytes(request_.memory_bytes),
                  in_mebibytes(before)));
}

bool Optimizer::fits(const OpenVariant& candidate, TrialRecord& record) const {
  const int64_t planned = candidate.worker->facts().planned_bytes;
  if (request_.memory_bytes == 0 || planned <= request_.memory_bytes) return true;
  record.verdict = TrialVerdict::kRefused;
  record.reason = fmt::format("it needs {:.1f} MiB: {:.1f} more than there are",
                              in_mebibytes(planned),
                              in_mebibytes(planned - request_.memory_bytes));
  return false;
}

// The same variant twice: what the machine adds to a pair by itself.
void Optimizer::measure_noise() {
  const OpenVariant twin = open(base_, 0);
  TrialOptions options = trial_options(kTrialShare * request_.budget_seconds);
  options.most_pairs = kNoisePairs;
  const TrialResult trial = compare(*best_.worker, *twin.worker, options);
  std::vector<double> ratios;
  for (const Pair& pair : trial.pairs)
    if (!pair.dropped) ratios.push_back(pair.log_ratio());
  if (ratios.size() < 3) {
    result_.summary.notes.push_back("others take this machine's CPU time: few verdicts will stand");
    return;
  }
  const double noise = 1.4826 * median_absolute_deviation(ratios);
  constexpr double kShown = 0.05;
  const int64_t most = TrialOptions{}.most_pairs;
  const int64_t pairs = pairs_for_power({}, std::log1p(kShown), std::max(noise, 1e-4), 0.9, most);
  observer_.on_message(fmt::format(
      "noise: pairs of the same program differ by {:.1f} %; a gain of 5 % would take {} pairs of "
      "{:.1f} s",
      100 * noise,
      pairs == most ? fmt::format("more than {}", most) : fmt::format("about {}", pairs),
      4 * static_cast<double>(trial.steps) * trial.before_seconds));
}

TrialRecord Optimizer::new_record(std::string_view technique) const {
  TrialRecord record;
  record.number = static_cast<int64_t>(result_.trials.size()) + 1;
  record.technique = technique;
  record.machine = machine_;
  record.started = utc_time(wall_ns());
  if (!best_.recipe.empty()) record.recipe_before = to_toml(best_.recipe);
  return record;
}

void Optimizer::finish(TrialRecord record) {
  observer_.on_trial(record);
  result_.trials.push_back(std::move(record));
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

void Optimizer::try_technique(const Technique& technique) {
  const bool loads = technique.affects == Affects::kLoading;
  const Proposals proposals = technique.propose(situation());
  TrialRecord record = new_record(technique.name);
  if (!proposals.tries.empty())
    record.ceiling = loads ? loading_ceiling(best_.costs) : computing_ceiling(best_.costs);
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
    if (!search_is_over()) try_proposal(technique, proposal, std::move(trial));
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

void Optimizer::run_trial(const Technique& technique,
                          const Proposal& proposal,
                          TrialRecord& record,
                          std::vector<ConfigFlag>& mended) {
  if (!best_.worker->is_running()) best_ = open(best_.recipe, 0);  // it failed in another trial
  Recipe recipe = best_.recipe;
  for (const ConfigFlag& change : proposal.changes) recipe.set(change.key, change.value);
  record.recipe = to_toml(recipe);
  record.recipe_hash = recipe_hash(recipe);
  OpenVariant candidate = open(recipe, 0);
  record.plan_hash = candidate.worker->facts().plan_hash;
  record.predicted = predict(candidate, technique.affects);
  if (!fits(candidate, record) || !numbers_agree(candidate, record)) return;
  if (record.predicted->high < kWorthTrying) {
    record.verdict = TrialVerdict::kRefused;
    record.reason = "predicted to gain less than 2 %";
    return;
  }
  time_candidate(candidate, record);
  if (record.verdict != TrialVerdict::kKept) return;
  if (record.semantic_class != SemanticClass::kBitIdentical &&
      !guard_candidate(candidate, record, mended))
    return;
  best_ = std::move(candidate);
  measure_costs(best_);
}

SpeedRange Optimizer::predict(OpenVariant& candidate, Affects affects) {
  StepCosts before = best_.costs;
  candidate.costs.compute = before.compute;
  candidate.costs.load = before.load;
  if (affects == Affects::kComputing)
    std::tie(before.compute, candidate.costs.compute) =
        measure_both(*best_.worker, *candidate.worker, StepKind::kKept);
  else
    std::tie(before.load, candidate.costs.load) =
        measure_both(*best_.worker, *candidate.worker, StepKind::kLoad);
  return predicted_speedup(before, candidate.costs, cpus_);
}

bool Optimizer::guard_candidate(const OpenVariant& candidate,
                                TrialRecord& record,
                                std::vector<ConfigFlag>& mended) {
  const double seconds = seconds_left();
  WorkerProcess worker(WorkerOptions{
      .program = request_.program, .answer_seconds = seconds, .deadline_ns = deadline(seconds)});
  const double most_steps = kGuardShare * request_.budget_seconds / best_.costs.compute;
  const GuardAnswer answer = worker.guard({.reference = best_.config.toml,
                                           .candidate = candidate.config.toml,
                                           .semantic_class = record.semantic_class,
                                           .most_steps = std::llround(most_steps)});
  record.guard = answer.text;
  OptimizeGuard& guard = result_.summary.guard;
  if (answer.passed) {
    guard.verdict = "passed";
    guard.text = answer.text;
    if (answer.margin > 0) {
      guard.margin = answer.margin;
      guard.power = answer.power;
    }
    return true;
  }
  record.verdict = TrialVerdict::kGuardFailed;
  record.reason = answer.text;
  if (!answer.f32_modules.empty()) {
    std::string modules;
    for (const std::string& module : answer.f32_modules)
      modules += (modules.empty() ? "" : ",") + module;
    mended.push_back({"train.f32_modules", modules, "the guard"});
  }
  return false;
}

bool Optimizer::numbers_agree(const OpenVariant& candidate, TrialRecord& record) const {
  if (record.semantic_class != SemanticClass::kBitIdentical) return true;
  if (candidate.state_hash == best_.state_hash) {
    record.guard = fmt::format("same bits of the state after {} steps", kHashSteps);
    return true;
  }
  record.verdict = TrialVerdict::kGuardFailed;
  record.reason = record.guard =
      fmt::format("the state after {} steps has other bits: {}, expected {}",
                  kHashSteps,
                  candidate.state_hash,
                  best_.state_hash);
  return false;
}

void Optimizer::time_candidate(OpenVariant& candidate, TrialRecord& record) {
  // What promises more may take longer.
  const double share = record.predicted->low > kPromise    ? kLongTrialShare
                       : record.predicted->high < kPromise ? kShortTrialShare
                                                           : kTrialShare;
  TrialOptions options = trial_options(share * request_.budget_seconds);
  // Of all trials together, however many there will be, the error is that of one: the shares
  // 1/2 + 1/6 + 1/12 + ... sum to 1.
  const auto timed = static_cast<double>(++timed_);
  options.judge.accept_error /= timed * (timed + 1);
  const TrialResult trial = compare(*best_.worker, *candidate.worker, options);
  fill(record, trial, options.judge);
  switch (trial.verdict) {
    case Verdict::kFaster:
      record.verdict = TrialVerdict::kKept;
      record.reason = "faster";
      break;
    case Verdict::kNotFaster:
      record.verdict = TrialVerdict::kNotFaster;
      record.reason = "not 2 % faster";
      break;
    case Verdict::kOpen:
      record.verdict = TrialVerdict::kOpen;
      record.reason = open_reason(trial);
      break;
  }
}

VariantSpeed Optimizer::speed_of(const OpenVariant& variant) const {
  VariantSpeed speed;
  speed.config = variant.config.toml;
  speed.planned_bytes = variant.worker->facts().planned_bytes;
  speed.measured_bytes = variant.worker->measured_bytes();
  const VariantFacts& facts = variant.worker->facts();
  speed.memory = {{"state", facts.state_bytes},
                  {"arena", facts.planned_bytes - facts.state_bytes - facts.staging_bytes},
                  {"batches that the loader stages", facts.staging_bytes}};
  return speed;
}

// The configuration as it was against what was kept, in processes that know nothing of the search,
// on an epoch that it has not seen.
void Optimizer::prove() {
  best_.worker.reset();
  TrialRecord record = new_record(kProofTechnique);
  const int64_t start = now_ns();
  record.recipe_before = base_.empty() ? "" : to_toml(base_);
  record.hypothesis = "what was kept, together, in fresh processes and on another epoch";
  OpenVariant before = open(base_, 1), after = open(best_.recipe, 1);
  record.recipe = to_toml(best_.recipe);
  record.recipe_hash = recipe_hash(best_.recipe);
  record.plan_hash = after.worker->facts().plan_hash;
  best_.worker = std::move(after.worker);
  TrialOptions options = trial_options(seconds_left());
  options.least_pairs = kProofPairs;
  const TrialResult trial = compare(*before.worker, *best_.worker, options);
  fill(record, trial, options.judge);
  record.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  OptimizeSummary& summary = result_.summary;
  summary.baseline = speed_of(before);
  summary.result = speed_of(best_);
  fill(summary.baseline, best_.worker->facts().batch, trial.before_seconds);
  fill(summary.result, best_.worker->facts().batch, trial.after_seconds);
  summary.baseline.loader_wait_share = wait_share(trial.pairs, &Pair::before);
  summary.result.loader_wait_share = wait_share(trial.pairs, &Pair::after);
  if (trial.verdict == Verdict::kFaster && record.measured) {
    record.verdict = TrialVerdict::kKept;
    record.reason = "proven";
    summary.claim = {.speedup = record.measured->mid,
                     .low = record.measured->low,
                     .high = record.measured->high,
                     .pairs = record.judged_pairs(),
                     .confidence = kProofConfidence};
    best_.recipe.proven = {.version = RIDGE_VERSION,
                           .claim = fmt::format("{:.2f} times as fast ({:.2f} to {:.2f}, {:.0f} %)",
                                                summary.claim.speedup,
                                                summary.claim.low,
                                                summary.claim.high,
                                                100 * summary.claim.confidence),
                           .plan = record.plan_hash,
                           .config = config_hash(resolve({}).loaded.config),
                           .machine = machine_};
    summary.recipe = to_toml(best_.recipe);
    if (best_.config.loaded.config.loader.cache && !resolve(base_).loaded.config.loader.cache)
      summary.notes.push_back(
          "the claim is of steps from the second epoch on, when samples are in memory");
  } else {
    record.verdict =
        trial.verdict == Verdict::kNotFaster ? TrialVerdict::kNotFaster : TrialVerdict::kOpen;
    record.reason =
        trial.verdict == Verdict::kNotFaster ? "not faster when proven again" : open_reason(trial);
    summary.result = summary.baseline;
    summary.notes.push_back("what was kept could not be proven again: your configuration stays");
  }
  finish(std::move(record));
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

void Optimizer::measure_baseline() {
  measure_costs(best_);
  const StepCosts& costs = best_.costs;
  OptimizeSummary& summary = result_.summary;
  summary.baseline = speed_of(best_);
  fill(summary.baseline, best_.worker->facts().batch, costs.step);
  summary.baseline.loader_wait_share = costs.wait_share;
  summary.result = summary.baseline;
  observer_.on_message(
      fmt::format("baseline: {:.3g} ms a step; {:.3g} ms without the loader, "
                  "{:.3g} ms the loader alone, {:.3g} ms without kernels",
                  1e3 * costs.step,
                  1e3 * costs.compute,
                  1e3 * costs.load,
                  1e3 * costs.host));
}

OptimizeResult Optimizer::run() {
  OptimizeSummary& summary = result_.summary;
  const std::string device = resolve({}).loaded.config.train.device;
  machine_ = machine_fingerprint(device);
  summary.target = fmt::format("{} on {}", request_.config_name, device);
  summary.machine = machine_;
  summary.budget_s = request_.budget_seconds;
  summary.guard.verdict = "not_needed";
  summary.guard.text = "no change that was kept touches numbers";
  size_t looked_at = 0;
  try {
    best_ = open({}, 0);
    fit_memory();
    measure_baseline();
    measure_noise();
    for (; looked_at < request_.techniques.size(); ++looked_at)
      try_technique(request_.techniques[looked_at]);
    if (recipe_hash(best_.recipe) != recipe_hash(base_)) prove();
  } catch (const TrialStopped& stop) {
    summary.notes.push_back(fmt::format("ended early: {}", stop.what()));
    tell_not_tried(looked_at, stop.what());
  } catch (const WorkerFailed& failure) {
    throw UserError(
        fmt::format("{} cannot be run as it is: {}", request_.config_name, failure.what()));
  }
  // A limit is kept to whatever was gained within it.
  if (summary.recipe.empty() && !base_.empty()) summary.recipe = to_toml(base_);
  summary.seconds = static_cast<double>(now_ns() - start_) * 1e-9;
  return std::move(result_);
}

OptimizeResult optimize(const OptimizeRequest& request, OptimizeObserver& observer) {
  return Optimizer(request, observer).run();
}

}  // namespace ridge
