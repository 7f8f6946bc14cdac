#include "ridge/tune/engine/config_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/tune/engine/config_guard.h"
#include "ridge/tune/engine/offers.h"
#include "ridge/tune/engine/part_meter.h"
#include "ridge/tune/engine/variant_report.h"

namespace ridge {
namespace {

// A plan is made so many times for a limit, each with what the one before needed besides.
constexpr int kFits = 3;

// A proof keeps so many seconds for tracing steps for the pictures, or that share of the budget.
constexpr double kTracingSeconds = 2.4, kTracingShare = 0.05;

// Why the variant needs more than the limit of memory allows; empty: it does not, or there is none.
std::string too_large(const OpenConfig& variant, int64_t memory_bytes) {
  const int64_t planned = variant.facts().planned_bytes;
  if (memory_bytes == 0 || planned <= memory_bytes) return {};
  return fmt::format("it needs {:.1f} MiB: {:.1f} more than there are",
                     in_mebibytes(planned),
                     in_mebibytes(planned - memory_bytes));
}

class ConfigTarget final : public Target {
 public:
  explicit ConfigTarget(OptimizeRequest request)
      : request_(std::move(request)),
        cpus_(usable_cpus()),
        meter_(cpus_),
        guard_(request_.program, request_.loop.budget_seconds, meter_),
        offers_(request_, cpus_, meter_) {}

  std::unique_ptr<TunedVariant> open(const std::string& recipe,
                                     int64_t epoch,
                                     int64_t until_ns) override {
    return open_config(recipe.empty() ? Recipe{} : parse_recipe(recipe, "recipe"), epoch, until_ns);
  }

  std::string cannot_run() const override {
    return request_.config_name + " cannot be run as it is";
  }

  std::vector<std::string> techniques() const override {
    std::vector<std::string> names;
    for (const Technique& technique : request_.techniques) names.emplace_back(technique.name);
    return names;
  }

  std::unique_ptr<TunedVariant> start(const LoopView& loop) override {
    describe_config(request_, resolve({}).loaded.config.train.device, loop.summary);
    std::unique_ptr<OpenConfig> best = open_within_limit(loop);
    guard_.begin(*best);
    describe_variant(*best, loop.summary.baseline);
    meter_.measure_best(*best, false);
    report_baseline(loop, *best, meter_.costs(), queue_seconds(*best));
    std::unique_ptr<OpenConfig> twin = open_config(base_, 0, loop.budget.end_ns());
    meter_.measure_noise(loop, *best, *twin, request_.loop.seed);
    twin.reset();
    meter_.measure_launches(loop, *best, [&](int64_t micro) {
      Recipe recipe = base_;
      recipe.set("train.micro", fmt::format("{}", micro));
      return open_config(recipe, 0, loop.budget.end_ns());
    });
    return best;
  }

  std::vector<Change> changes(std::span<const Change> kept, TunedVariant& best) override {
    return offers_.changes(kept, as_config(best), limit_text_);
  }

  RecipeText recipe(std::span<const Change> kept, const RecipeClaim* proven) override {
    Recipe recipe = base_;
    for (const Change& change : kept)
      for (const ConfigFlag& flag : offers_[change].proposal.changes)
        recipe.set(flag.key, flag.value);
    if (recipe.empty()) return {"", recipe_hash(recipe)};
    if (proven != nullptr) {
      recipe.proven = *proven;
      recipe.proven.config = config_hash(resolve({}).loaded.config);
    }
    return {to_toml(recipe), recipe_hash(recipe)};
  }

  void measure(Change& change, VariantPair pair) override {
    offers_.measure(change, as_config(pair.before), as_config(pair.after));
  }

  bool is_sound(const Change& change, VariantPair pair, TrialRecord& record) override {
    const OpenConfig &best = as_config(pair.before), &candidate = as_config(pair.after);
    std::string refusal = too_large(candidate, request_.memory_bytes);
    if (refusal.empty()) refusal = offers_.refusal(change, best, candidate);
    if (!refusal.empty()) {
      record.conclude(TrialVerdict::kRefused, std::move(refusal));
      return false;
    }
    if (change.semantic_class != SemanticClass::kBitIdentical || !change.settled.empty())
      return true;
    GuardAnswer bits = compare_bits(candidate.state_hash(), best.state_hash());
    record.guard = bits.text;
    if (!bits.passed) record.conclude(TrialVerdict::kGuardFailed, std::move(bits.text));
    return bits.passed;
  }

  TrialOptions trial_options(VariantPair pair, int64_t until_ns) const override {
    const VariantFacts& facts = as_config(pair.before).facts();
    TrialOptions options = trial_until(until_ns, 0);
    options.work = work_ratio(facts, as_config(pair.after).facts());
    options.least_steps = meter_.least_steps(facts.mix);
    return options;
  }

  double step_seconds() const override { return meter_.costs().step; }

  double guard_seconds(SemanticClass semantic_class) const override {
    return guard_.seconds(semantic_class);
  }

  GuardOutcome guard(const Change& change, VariantPair pair, int64_t until_ns) override {
    if (change.semantic_class == SemanticClass::kBitIdentical)
      return {.passed = true};  // is_sound()
    OpenConfig &best = as_config(pair.before), &candidate = as_config(pair.after);
    GuardAnswer answer = guard_.judge(change.semantic_class, best, candidate, until_ns);
    if (!answer.passed && !answer.f32_modules.empty()) offers_.mend(change, answer.f32_modules);
    return outcome_of(std::move(answer));
  }

  void keep(const Change& change, TunedVariant& best, const TrialResult&) override {
    guard_.keep(change.semantic_class);
    offers_.note_kept(change.loads);
    meter_.measure_best(as_config(best), change.loads);
  }

  GuardOutcome guard_rest(RestClasses classes, VariantPair pair, int64_t until_ns) override {
    OpenConfig &without = as_config(pair.before), &best = as_config(pair.after);
    if (std::string large = too_large(without, request_.memory_bytes); !large.empty())
      return {.passed = false, .text = std::move(large)};
    return guard_.judge_rest(classes, best, without, until_ns);
  }

  TrialResult prove(VariantPair pair, const ProofOptions& proof) override {
    if (proof.summary == nullptr) return compare(pair.before, pair.after, proof.trial);
    return prove_configs(
        as_config(pair.before), as_config(pair.after), proof.trial, *proof.summary);
  }

  // Besides, a pair may begin at the end of the time.
  double proof_extra_seconds() const override {
    TrialOptions options;
    options.least_steps = meter_.least_steps(1);
    return std::min(kTracingSeconds, kTracingShare * request_.loop.budget_seconds) +
           4 * block_seconds(options, step_seconds());
  }

 private:
  // The recipe wins over flags for the same keys: it has one only where the user asks what a change
  // would gain that the flag forbids.
  ResolvedConfig resolve(const Recipe& recipe) const {
    std::vector<ConfigFlag> flags = request_.flags;
    std::erase_if(flags, [&](const ConfigFlag& flag) {
      return std::ranges::find(recipe.changes(), flag.key, &ConfigFlag::key) !=
             recipe.changes().end();
    });
    return resolve_config(request_.config_text, request_.config_name, recipe, flags);
  }

  std::unique_ptr<OpenConfig> open_config(const Recipe& recipe,
                                          int64_t epoch,
                                          int64_t until_ns) const {
    const WorkerOptions options{.program = request_.program, .deadline_ns = until_ns};
    return std::make_unique<OpenConfig>(resolve(recipe), options, epoch);
  }

  // A plan that keeps within the limit, whatever it costs: micro-batches and recomputed results.
  // The process needs little memory besides (code, tables of kernels), and how much is known once
  // it has run.
  std::unique_ptr<OpenConfig> open_within_limit(const LoopView& loop) {
    std::unique_ptr<OpenConfig> best = open_config(base_, 0, loop.budget.end_ns());
    limit_text_ = text_of_limit(best->facts());
    if (request_.memory_bytes == 0) return best;
    const int64_t before = best->facts().planned_bytes;
    int64_t besides = best->facts().staging_bytes;
    for (int attempt = 0; attempt < kFits; ++attempt) {
      const int64_t mebibytes = (request_.memory_bytes - besides) >> 20;
      if (mebibytes < 1)
        throw UserError(
            fmt::format("--memory is {:.1f} MiB, and {:.1f} MiB of it are needed besides "
                        "the plan: for batches that the loader stages, and code",
                        in_mebibytes(request_.memory_bytes),
                        in_mebibytes(besides)),
            "give it more, or lower loader.prefetch");
      base_.set("train.memory_limit", fmt::format("{}", mebibytes));
      best.reset();  // its memory, before that of the next is taken
      best = open_config(base_, 0, loop.budget.end_ns());
      const int64_t over = best->worker().measured_bytes() - request_.memory_bytes;
      if (over <= 0) break;
      besides += over + (int64_t{1} << 20);
    }
    limit_text_ = text_of_limit(best->facts(), before);
    loop.observer.on_message(limit_message(*best, request_.memory_bytes, before));
    return best;
  }

  OptimizeRequest request_;
  int cpus_;
  Recipe base_;  ///< The recipe of every variant: a memory limit, or nothing.
  PartMeter meter_;
  ConfigGuard guard_;
  OfferList offers_;
  std::string limit_text_;  ///< The plan that a limit of memory led to, in words.
};

}  // namespace

std::unique_ptr<Target> config_target(OptimizeRequest request) {
  return std::make_unique<ConfigTarget>(std::move(request));
}

}  // namespace ridge
