#include "ridge/tune/loop.h"

#include <algorithm>
#include <cmath>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/base/shell_word.h"
#include "ridge/base/stop.h"
#include "ridge/run/backends.h"
#include "ridge/tune/loop_state.h"

namespace ridge {
namespace {

// Shares of the budget: the search ends here, and what is left belongs to the proof.
constexpr double kSearchShare = 0.65;

// Of a block, where batches differ in length.
constexpr double kMixSeconds = 0.05;

}  // namespace

Optimizer::Optimizer(const OptimizeRequest& request, OptimizeObserver& observer)
    : request_(request), observer_(observer), start_(now_ns()), cpus_(usable_cpus()) {}

double Optimizer::seconds_left() const {
  return request_.budget_seconds - static_cast<double>(now_ns() - start_) * 1e-9;
}

// Four blocks, each of short steps with one before it that is not timed.
double Optimizer::pair_seconds() const {
  const double steps = best_.costs.step * static_cast<double>(least_steps());
  const double warm = best_.costs.step < kWarmStepSeconds ? best_.costs.step : 0;
  return 4 * (std::max(TrialOptions{}.block_seconds, steps) + warm);
}

// Two variants are opened for the proof, and their pairs are timed.
double Optimizer::proof_need() const {
  if (best_.worker == nullptr) return 0;
  const TimingCosts costs{.start_seconds = best_.worker->facts().open_seconds,
                          .block_seconds = pair_seconds() / 4};
  return proof_seconds(costs, proof_pairs_, proof_block_seconds()) + tracing_seconds() +
         pair_seconds();
}

double Optimizer::tracing_seconds() const {
  return std::min(kTracingSeconds, kTracingShare * request_.budget_seconds);
}

double Optimizer::proof_block_seconds() const {
  return std::min(kProofSeconds, kProofShare * request_.budget_seconds);
}

double Optimizer::search_seconds_left() const {
  const double kept = std::max((1 - kSearchShare) * request_.budget_seconds, proof_need());
  return seconds_left() - kept;
}

double Optimizer::kept_gain() const {
  double gain = 0;
  for (const KeptChange& kept : kept_) gain += std::log(kept.gain);
  return gain;
}

double Optimizer::trial_seconds_left() const { return seconds_left() - proof_need(); }

// No trial is begun that could only end without a verdict, or with the time of the proof.
bool Optimizer::search_is_over() const {
  return stop_requested() || search_seconds_left() < 0 ||
         trial_seconds_left() < kVerdictPairs * pair_seconds();
}

int64_t Optimizer::deadline(double seconds_from_now) const {
  return now_ns() + static_cast<int64_t>(std::max(0.0, seconds_from_now) * 1e9);
}

ResolvedConfig Optimizer::resolve(const Recipe& recipe) const {
  return resolve_config(request_.config_text, request_.config_name, recipe, request_.flags);
}

OpenVariant Optimizer::open(const Recipe& recipe, int64_t epoch, std::span<const ConfigFlag> over) {
  std::vector<ConfigFlag> flags = request_.flags;
  for (const ConfigFlag& change : over)
    std::erase_if(flags, [&](const ConfigFlag& flag) { return flag.key == change.key; });
  OpenVariant variant;
  variant.recipe = recipe;
  variant.config = resolve_config(request_.config_text, request_.config_name, recipe, flags);
  start_worker(variant, epoch);
  variant.state_hash = variant.worker->state_hash();
  const int64_t threads = variant.config.settings->get_int("threads");
  // A device takes none from those that load.
  const bool is_device = variant.worker->facts().free_device_bytes.has_value();
  variant.costs.threads = is_device ? 0 : threads == 0 ? cpus_ : threads;
  variant.costs.samples = samples_per_step(variant.worker->facts());
  variant.costs.workers = variant.config.loaded.config.loader.workers;
  return variant;
}

void Optimizer::start_worker(OpenVariant& variant, int64_t epoch) const {
  const WorkerOptions options{.program = request_.program, .deadline_ns = deadline(seconds_left())};
  variant.worker = std::make_unique<WorkerProcess>(options, variant.config.toml, epoch);
  variant.worker->run(kHashSteps);
}

// Its process failed in the trial of another, or made room for a guard.
void Optimizer::reopen(OpenVariant& variant) const {
  if (!variant.worker->is_running()) start_worker(variant, 0);
}

// Both variants time the same batches, so few of a mix are fair; more say better what all gain.
int64_t Optimizer::least_steps() const {
  const double mix = std::ceil(kMixSeconds / std::max(best_.costs.step, 1e-9));
  const auto most = static_cast<double>(best_.worker->facts().mix);
  return std::max(block_steps_, static_cast<int64_t>(std::min(mix, most)));
}

TrialOptions Optimizer::trial_options(double most_seconds) const {
  const int64_t until = deadline(std::min(most_seconds, seconds_left()));
  TrialOptions options = trial_until(until, request_.seed + result_.trials.size());
  options.least_steps = least_steps();
  return options;
}

// However many trials there will be: the shares 1/2 + 1/6 + 1/12 + ... sum to 1.
TrialOptions Optimizer::next_trial_options(double most_seconds) {
  TrialOptions options = trial_options(most_seconds);
  const auto timed = static_cast<double>(++timed_);
  options.judge.accept_error /= timed * (timed + 1);
  return options;
}

TrialRecord Optimizer::new_record(std::string_view technique) const {
  TrialRecord record;
  record.technique = technique;
  record.machine = machine_;
  record.started = utc_time(wall_ns());
  if (!best_.recipe.empty()) record.recipe_before = to_toml(best_.recipe);
  return record;
}

void Optimizer::finish(TrialRecord record) {
  record.number = static_cast<int64_t>(result_.trials.size()) + 1;
  observer_.on_trial(record);
  result_.trials.push_back(std::move(record));
}

void Optimizer::find_and_prove() {
  best_ = open({}, 0);
  fit_memory();
  result_.summary.baseline = result_.summary.result = speed_of(best_);
  original_hash_ = best_.state_hash;
  measure_baseline();
  measure_noise();
  measure_launches();
  measure_room();
  if (request_.is_dry) return look_at_all();
  search();
  leave_one_out();
  if (recipe_hash(best_.recipe) != recipe_hash(base_)) prove();
}

OptimizeResult Optimizer::run() {
  OptimizeSummary& summary = result_.summary;
  const std::string device = resolve({}).loaded.config.train.device;
  machine_ = device_fingerprint(device);
  summary.target = fmt::format("{} on {}", request_.config_name, device);
  const std::string train = "ridge train " + shell_word(request_.config_name);
  summary.recipe_use = train + " --recipe";
  for (const ConfigFlag& flag : request_.flags)
    summary.recipe_rest += " --set " + shell_word(fmt::format("{}={}", flag.key, flag.value));
  summary.doctor_use = fmt::format(
      "{}{} --steps 14 --trace step.json && ridge doctor step.json", train, summary.recipe_rest);
  summary.machine = machine_;
  summary.budget_s = request_.budget_seconds;
  summary.energy_problem = "nothing was kept, so there was no proof to weigh";
  summary.guard.verdict = "not_needed";
  summary.guard.text = "no change that was kept touches numbers";
  summary.is_dry = request_.is_dry;
  try {
    find_and_prove();
  } catch (const TrialStopped& stop) {
    summary.notes.push_back(fmt::format("ended early: {}", stop.what()));
    finish_rest(stop_requested() ? kWasStopped : kNoTime);
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
