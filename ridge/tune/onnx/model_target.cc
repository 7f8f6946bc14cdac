#include "ridge/tune/onnx/model_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ridge/base/error.h"
#include "ridge/base/stats.h"
#include "ridge/tune/onnx/model_report.h"
#include "ridge/tune/onnx/output_guard.h"

namespace ridge {
namespace {

// Shares of the budget: for f64's outputs, and for the comparison with another runtime.
constexpr double kOracleShare = 0.04, kRivalShare = 0.08;
// The time of a run is that of so many seconds of them.
constexpr double kBaselineSeconds = 0.5;
// A rival may have so many rows a run, where the goal is throughput.
constexpr int64_t kRivalBatch = 16;
constexpr size_t kMostCompared = 64;

int64_t until(const LoopView& loop, double share) {
  return LoopBudget::deadline(std::min(loop.budget.left(), share * loop.budget.total()));
}

NamedKernels kernels_of(const SessionFacts& facts) {
  NamedKernels kernels;
  for (const std::string& text : facts.kernels) {
    const size_t space = text.find(' ');
    if (space != std::string::npos) kernels[text.substr(0, space)] = text.substr(space + 1);
  }
  return kernels;
}

class ModelTarget final : public Target {
 public:
  ModelTarget(const ModelRequest& request,
              std::unique_ptr<ModelRunners> runners,
              const ModelSituation& machine)
      : request_(request), runners_(std::move(runners)), situation_(machine) {
    situation_.is_throughput = request.is_throughput;
    situation_.has_rows = !runners_->samples().rows.empty();
    situation_.has_data = !runners_->samples().is_drawn;
    for (const auto method :
         {compress::QuantizeMethod::kStatic, compress::QuantizeMethod::kDynamic})
      situation_.quantized[method] = quantized_name(request.model, method);
  }

  std::unique_ptr<TunedVariant> start(const LoopView& loop) override {
    describe_model(request_, loop.summary);
    compute_oracle(loop);
    std::unique_ptr<OpenModel> best = runners_->open({}, compared_, loop.budget.end_ns());
    reference_ = best->outputs();
    plain_kernels_ = kernels_of(best->facts());
    situation_.facts = best->facts();
    loop.summary.baseline = speed_of(*best, time_best(*best));
    loop.summary.baseline.set_step(situation_.step_seconds, 0);
    loop.report(baseline_text(*best, situation_.step_seconds));
    loop.report("the session as it is, " + judge(*best, SemanticClass::kReassociation).text);
    meet_rival(loop, *best);
    return best;
  }

  std::unique_ptr<TunedVariant> open(const std::string& recipe,
                                     int64_t /*epoch*/,
                                     int64_t until_ns) override {
    return runners_->open(recipe, compared_, until_ns);
  }

  std::string cannot_run() const override { return request_.model + " cannot be run as it is"; }

  std::vector<std::string> techniques() const override { return model_techniques(); }

  std::vector<Change> changes(std::span<const Change> kept, TunedVariant& best) override {
    situation_.recipe = recipe_of(kept);
    situation_.facts = as_model(best).facts();
    std::vector<Change> changes;
    for (ModelProposal& proposal : model_proposals(situation_)) {
      const bool is_settled = proposal.text.empty();
      const std::string key = is_settled ? proposal.technique : key_of(proposal);
      changes.push_back({.technique = proposal.technique,
                         .key = key,
                         .text = proposal.text,
                         .hypothesis = proposal.hypothesis,
                         .semantic_class = proposal.semantic_class,
                         .id = proposals_.size(),
                         .settled = is_settled ? proposal.hypothesis : std::string(),
                         .settled_as = TrialVerdict::kNotTried});
      proposals_.push_back(std::move(proposal));
    }
    return changes;
  }

  RecipeText recipe(std::span<const Change> kept, const RecipeClaim* proven) override {
    ModelRecipe recipe = recipe_of(kept);
    if (kept.empty()) return {"", recipe_hash(ModelRecipe{})};
    recipe.sizes = runners_->samples().sizes;
    recipe.sizes.erase(runners_->samples().rows);
    if (proven != nullptr) {
      recipe.proven = *proven;
      recipe.proven.config = model_hash(request_.model);
      if (!recipe.quantized.empty())
        recipe.files[recipe.quantized] = model_hash(runners_->file(recipe.quantized));
      if (!request_.against) recipe.proven.claim += "; " + std::string(kNoRival);
    }
    return {to_toml(recipe), recipe_hash(recipe)};
  }

  RecipeText baseline() override {
    if (!is_rival_faster_) return recipe({}, nullptr);
    ModelRecipe rival{.runtime = std::string(name_of(*request_.against))};
    if (rival_batch_ > 1) rival.batch = rival_batch_;
    return {to_toml(rival), recipe_hash(rival)};
  }

  // A change that keeps the bits is guarded before it is timed: its outputs are there.
  bool is_sound(const Change& change, VariantPair pair, TrialRecord& record) override {
    if (change.semantic_class != SemanticClass::kBitIdentical) return true;
    GuardOutcome bits =
        compare_outputs(as_model(pair.after).outputs(), as_model(pair.before).outputs());
    record.guard = bits.text;
    if (!bits.passed) record.conclude(TrialVerdict::kGuardFailed, std::move(bits.text));
    return bits.passed;
  }

  TrialOptions trial_options(VariantPair pair, int64_t until_ns) const override {
    TrialOptions options = trial_until(until_ns, 0);
    options.work = static_cast<double>(as_model(pair.after).samples()) /
                   static_cast<double>(as_model(pair.before).samples());
    return options;
  }

  double step_seconds() const override { return situation_.step_seconds; }

  void write_files(const std::string& recipe, const std::filesystem::path& folder) override {
    const std::string name = parse_model_recipe(recipe, "recipe").quantized;
    if (!name.empty()) write_file_atomically(folder / name, read_file(runners_->file(name)));
  }

  // The first guard of 16 bits runs the control.
  double guard_seconds(SemanticClass semantic_class) const override {
    return semantic_class == SemanticClass::kPrecision && control_.empty() ? 2 * oracle_seconds_
                                                                           : 0;
  }

  GuardOutcome guard(const Change& change, VariantPair pair, int64_t until_ns) override {
    if (change.semantic_class == SemanticClass::kBitIdentical)
      return {.passed = true};  // is_sound()
    return judge_changed(
        as_model(pair.after), std::max(change.semantic_class, kept_class_), until_ns);
  }

  void keep(const Change& change, TunedVariant& best, const TrialResult& trial) override {
    kept_class_ = std::max(kept_class_, change.semantic_class);
    if (proposals_[change.id].sets_kernels)
      known_kernels_[change.id] = kernels_of(as_model(best).facts());
    situation_.step_seconds = std::max(1e-9, trial.after_seconds);
  }

  GuardOutcome guard_rest(RestClasses classes, VariantPair pair, int64_t until_ns) override {
    const OpenModel& without = as_model(pair.before);
    if (classes.left == SemanticClass::kBitIdentical)
      return compare_outputs(without.outputs(), reference_);
    return judge_changed(without, classes.left, until_ns);
  }

  TrialResult prove(VariantPair pair, const ProofOptions& proof) override {
    OpenModel &before = as_model(pair.before), &after = as_model(pair.after);
    if (proof.summary == nullptr) return compare(before, after, proof.trial);
    const TrialResult trial = prove_models(before, after, proof.trial, *proof.summary);
    if (is_rival_faster_ && trial.verdict != Verdict::kFaster)
      proof.summary->advice = advice_after_proof(rival_name_, trial);
    return trial;
  }

 private:
  // Names what a proposal changes, and what the best kernels of it depend on.
  std::string key_of(const ModelProposal& proposal) const {
    const ModelRecipe& best = situation_.recipe;
    const std::string key = fmt::format("{}: {}", proposal.technique, proposal.text);
    return proposal.sets_kernels ? fmt::format("{}, {} rows, {}",
                                               key,
                                               best.batch.value_or(1),
                                               name_of(best.choices.precision))
                                 : key;
  }

  // Kernels that nothing changed are those of the session as it is: it may have picks that are
  // kept.
  ModelRecipe recipe_of(std::span<const Change> kept) const {
    ModelRecipe recipe;
    if (!kept.empty()) recipe.choices.kernels = plain_kernels_;
    for (const Change& change : kept) {
      const auto known = known_kernels_.find(change.id);
      if (known != known_kernels_.end())
        recipe.choices.kernels = known->second;
      else
        proposals_[change.id].apply(recipe);
    }
    return recipe;
  }

  std::string samples_words() const { return runners_->samples().words(compared_); }

  // The number of samples is what the budget allows.
  void compute_oracle(const LoopView& loop) {
    loop.observer.on_message("the model runs in f64, which outputs are compared with");
    const size_t all = std::min(runners_->samples().samples.size(), kMostCompared);
    double seconds = 0;
    oracle_ = runners_->wide_outputs(ModelRole::kOracle, 1, loop.budget.end_ns(), seconds);
    const double affordable = kOracleShare * loop.budget.total() / std::max(seconds, 1e-6);
    compared_ = std::clamp<size_t>(static_cast<size_t>(affordable), 1, all);
    if (compared_ > 1)
      oracle_ =
          runners_->wide_outputs(ModelRole::kOracle, compared_, loop.budget.end_ns(), seconds);
    oracle_seconds_ = seconds;
    if (runners_->samples().is_drawn)
      loop.summary.notes.push_back(fmt::format(
          "outputs were compared on {}: give yours by --data FILE.npz", samples_words()));
  }

  void prepare_control(SemanticClass semantic_class, int64_t until_ns) {
    if (semantic_class < SemanticClass::kPrecision || !control_.empty()) return;
    double seconds = 0;
    control_ = runners_->wide_outputs(ModelRole::kControl, compared_, until_ns, seconds);
  }

  GuardOutcome judge_changed(const OpenModel& candidate,
                             SemanticClass semantic_class,
                             int64_t until_ns) {
    if (candidate.is_quantized())
      return judge_quantized(oracle_, candidate.outputs(), samples_words());
    prepare_control(semantic_class, until_ns);
    return judge(candidate, semantic_class);
  }

  GuardOutcome judge(const OpenModel& candidate, SemanticClass semantic_class) const {
    return judge_outputs({.oracle = oracle_,
                          .reference = reference_,
                          .candidate = candidate.outputs(),
                          .control = control_.empty() ? nullptr : &control_},
                         semantic_class,
                         samples_words());
  }

  // Returns the seconds of each run.
  std::vector<double> time_best(OpenModel& best) {
    best.warm(2);
    int64_t runs = 1;
    double seconds = best.run(1).seconds;
    if (seconds < kBaselineSeconds) {
      runs = std::max<int64_t>(1, std::llround(kBaselineSeconds / std::max(seconds, 1e-7)));
      seconds = best.run(runs).seconds;
    }
    situation_.step_seconds = std::max(1e-9, seconds / static_cast<double>(runs));
    return best.take_runs();
  }

  // Who of both is faster is the baseline.
  void meet_rival(const LoopView& loop, OpenModel& best) {
    if (!request_.against) {
      loop.summary.notes.emplace_back(std::string(kNoRival) +
                                      ": no Python that has it was given (--against onnxruntime "
                                      "--python PYTHON)");
      return;
    }
    std::unique_ptr<OpenModel> rival = runners_->open_rival(1, rival_name_);
    if (situation_.is_throughput && situation_.has_rows) rival = faster_batch(std::move(rival));
    TrialOptions options = trial_options({*rival, best}, until(loop, kRivalShare));
    options.seed = request_.loop.seed;
    options.least_pairs = kProofPairs;
    rival->take_runs();
    const TrialResult trial = compare(*rival, best, options);
    best.take_runs();
    is_rival_faster_ = trial.gain < 0;
    loop.report(rival_text(rival_name_, *rival, trial));
    if (!is_rival_faster_) return;
    loop.summary.rival = rival_name_;
    loop.summary.advice = advice_of(rival_name_, trial);
    loop.summary.baseline = speed_of(*rival, rival->take_runs());
    loop.summary.baseline.set_step(trial.before_seconds, 0);
  }

  // A larger batch is no secret of ours.
  std::unique_ptr<OpenModel> faster_batch(std::unique_ptr<OpenModel> one) {
    std::string name;
    std::unique_ptr<OpenModel> many = runners_->open_rival(kRivalBatch, name);
    const auto row_seconds = [](OpenModel& model) {
      model.run(1);
      return model.run(2).seconds / static_cast<double>(2 * model.samples());
    };
    if (row_seconds(*many) >= row_seconds(*one)) return one;
    rival_batch_ = kRivalBatch;
    return many;
  }

  ModelRequest request_;
  std::unique_ptr<ModelRunners> runners_;
  ModelSituation situation_;
  SampleOutputs oracle_, reference_, control_;
  size_t compared_ = 0;  ///< Samples that are compared; 0 before start().
  double oracle_seconds_ = 0;
  NamedKernels plain_kernels_;
  std::vector<ModelProposal> proposals_;          ///< Change::id is the index.
  std::map<size_t, NamedKernels> known_kernels_;  ///< By id of a kept change.
  SemanticClass kept_class_ = SemanticClass::kBitIdentical;
  std::string rival_name_;
  int64_t rival_batch_ = 1;
  bool is_rival_faster_ = false;
};

}  // namespace

std::unique_ptr<Target> model_target(const ModelRequest& request,
                                     std::unique_ptr<ModelRunners> runners,
                                     const ModelSituation& machine) {
  return std::make_unique<ModelTarget>(request, std::move(runners), machine);
}

}  // namespace ridge
