#include "ridge/tune/pytorch/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "ridge/attach/samples/tree_memory.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/stats.h"
#include "ridge/base/stop.h"

namespace ridge {
namespace {

using GateEvent = attach::StepGate::Event;

// How long a wish to stop, or an end, may go unnoticed.
constexpr int kPollMilliseconds = 50;
// {steps} becomes this number: more than a trial makes, and no more than a schedule may hold in
// memory.
constexpr int64_t kManySteps = 100'000;
constexpr int64_t kQueuesOfBlock = 4;
// Steps become faster while caches fill and something compiles; a machine's noise is less.
constexpr double kStillFaster = 0.7, kMostSettleSeconds = 60;
constexpr size_t kSettled = 3, kLeastStretches = 5;
constexpr double kStretchSeconds = 0.02;
// A program that ends before it is warm has to make so many steps.
constexpr int64_t kLeastSteps = 4;
constexpr size_t kMostBreaks = 10'000;

double seconds_since(int64_t ns) { return static_cast<double>(now_ns() - ns) * 1e-9; }

/// How steps went, stretch by stretch, before the first block.
class WarmUp {
 public:
  void add(const attach::GateBlock& block) {
    steps_ += block.steps;
    seconds_ += block.seconds;
    stretches_.push_back(block.seconds / static_cast<double>(block.steps));
    if (stretches_.size() >= kLeastStretches && block.seconds < kStretchSeconds) stretch_ *= 2;
  }
  int64_t steps() const { return steps_; }
  double seconds() const { return seconds_; }
  /// Steps of the next stretch.
  int64_t stretch() const { return stretch_; }
  bool is_settled() const {
    if (stretches_.size() < kLeastStretches) return false;
    const std::span<const double> all(stretches_);
    const size_t before = std::min(kSettled, all.size() - kSettled);
    const auto last = all.last(kSettled);
    const auto former = all.subspan(all.size() - kSettled - before, before);
    return median({last.begin(), last.end()}) >=
           kStillFaster * median({former.begin(), former.end()});
  }

 private:
  std::vector<double> stretches_;
  int64_t steps_ = 0, stretch_ = 1;
  double seconds_ = 0;
};

}  // namespace

struct ForeignRunner::Parts {
  enum class Came : uint8_t {
    kWanted,
    kOther,  ///< The process that stepped is gone, and another one is held.
    kEnded,  ///< The program has ended, without a fault.
  };

  Parts(const ForeignTarget& given_target,
        const ForeignRecipe& given_recipe,
        const ForeignRunnerOptions& given_options)
      : target(given_target),
        recipe(given_recipe),
        options(given_options),
        whole_steps(given_options.whole_steps) {}

  void open();
  bool warm();
  Came go(int64_t steps, bool with_saves = false);
  Came await(GateEvent wanted, double patience);
  bool has_moved();
  void check_going(double patience);
  bool is_changing() const;
  void note_breaks(const attach::GateBlock& block);
  attach::StepGate& gate() { return *program->gate(); }

  ForeignTarget target;
  ForeignRecipe recipe;
  ForeignRunnerOptions options;
  std::unique_ptr<ForeignProgram> program;
  std::string source;
  int64_t queue = 0;
  double open_seconds = 0;
  int64_t warm_limit = 0;  ///< Warm steps of a program that would end before; 0: none.
  int64_t most_steps = 0;  ///< At a time, of one that would end; 0: not known.
  bool times_saves = false;
  bool is_fresh = false;  ///< It was started again, and has not run a block since.
  int64_t moved_ns = 0, moved_wall_ns = 0;  ///< When a step was last looked for, and seen.
  int64_t whole_steps;                      ///< Steps of the last run that ended by itself.
  int64_t break_count = 0;
  std::vector<double> break_seconds;
};

// Throws where the wait has to end.
void ForeignRunner::Parts::check_going(double patience) {
  if (stop_requested()) throw TrialStopped("stopped by a signal");
  if (options.deadline_ns != 0 && now_ns() > options.deadline_ns)
    throw TrialStopped("the budget is spent");
  if (seconds_since(moved_ns) <= patience) return;
  if (gate().process() == 0)
    throw program->failure(
        fmt::format("it came to no step within {:.3g} s: {}", patience, program->why_no_step()));
  // A block may be long where its steps are.
  if (!has_moved()) throw program->failure(fmt::format("it made no step for {:.3g} s", patience));
  moved_ns = now_ns();
}

// Whether it has made a step since this was last asked.
bool ForeignRunner::Parts::has_moved() {
  const std::optional<attach::ProcessFacts> facts = program->facts();
  const int64_t last_ns = facts ? facts->last_step_wall_ns : 0;
  return std::exchange(moved_wall_ns, last_ns) != last_ns;
}

ForeignRunner::Parts::Came ForeignRunner::Parts::await(GateEvent wanted, double patience) {
  moved_ns = now_ns();
  has_moved();
  for (;;) {
    const GateEvent event = gate().wait(kPollMilliseconds);
    if (event == wanted) return Came::kWanted;
    if (event == GateEvent::kHeld) return Came::kOther;
    if (event == GateEvent::kGone && !gate().trouble().empty())
      throw program->failure("of its process that steps: " + gate().trouble());
    check_going(patience);
    const std::optional<attach::ProgramEnd> end = program->program().wait(0);
    if (end && end->exit_code == 0) {
      if (const auto facts = program->facts()) whole_steps = facts->steps;
      return Came::kEnded;
    }
    if (!end) continue;
    // The key of a terminal reaches the program, too.
    check_going(patience);
    throw program->failure(*end);
  }
}

ForeignRunner::Parts::Came ForeignRunner::Parts::go(int64_t steps, bool with_saves) {
  gate().go(steps, with_saves);
  const Came came = await(GateEvent::kBlock, options.block_seconds);
  if (came == Came::kWanted) queue = std::max(queue, gate().block().queue);
  return came;
}

bool ForeignRunner::Parts::is_changing() const {
  const auto costs_steps = [&](const std::string& key) {
    const Knob* knob = find_knob(key);
    return knob != nullptr && knob->costs_first_steps && !recipe.get(key).empty();
  };
  // Facts are files: they are read where it can matter.
  if (std::ranges::none_of(knobs(), costs_steps, &Knob::key)) return false;
  const std::optional<attach::ProcessFacts> facts = program->facts();
  if (!facts) return false;
  return std::ranges::any_of(facts->knobs, [&](const attach::KnobFacts& knob) {
    return knob.state == "waiting" && costs_steps(knob.key);
  });
}

// False: the program ended before.
bool ForeignRunner::Parts::warm() {
  WarmUp steps;
  int64_t since_ns = now_ns();
  source = gate().source();
  const auto is_warm = [&] {
    if (warm_limit != 0 && steps.steps() >= warm_limit) return true;
    if (steps.steps() < options.warm_steps || steps.seconds() < options.warm_seconds) return false;
    return seconds_since(since_ns) > kMostSettleSeconds || (steps.is_settled() && !is_changing());
  };
  while (!is_warm()) {
    const Came came = go(steps.stretch());
    if (came == Came::kEnded) {
      if (steps.steps() < kLeastSteps)
        throw program->failure(
            fmt::format("it ended by itself after {} steps: too few to be timed", steps.steps()));
      warm_limit = std::max<int64_t>(1, steps.steps() / kLeastSteps);
      return false;
    }
    const bool is_same = came == Came::kWanted && gate().block().source == source;
    source = came == Came::kWanted ? gate().block().source : gate().source();
    if (steps.steps() == 0 || !is_same) since_ns = now_ns();
    if (!is_same) steps = {};
    if (is_same) steps.add(gate().block());
  }
  return true;
}

void ForeignRunner::Parts::open() {
  do {
    program.reset();
    const int64_t started_ns = now_ns();
    attach::ShimOptions shim;
    shim.profiled_steps = 0;
    shim.keeps_spans = false;
    shim.gate = true;
    program = std::make_unique<ForeignProgram>(target, recipe, shim, kManySteps);
    if (await(GateEvent::kHeld, options.start_seconds) == Came::kEnded)
      throw program->failure("it ended without a step: " + program->why_no_step());
    is_fresh = warm();
    open_seconds = seconds_since(started_ns);
  } while (!is_fresh);
}

void ForeignRunner::Parts::note_breaks(const attach::GateBlock& block) {
  const double step_seconds = block.seconds / static_cast<double>(block.steps);
  for (const attach::GateBreak& one : block.breaks) {
    ++break_count;
    if (break_seconds.size() < kMostBreaks)
      break_seconds.push_back(one.seconds - static_cast<double>(one.steps) * step_seconds);
  }
}

ForeignRunner::ForeignRunner(const ForeignTarget& target,
                             const ForeignRecipe& recipe,
                             const ForeignRunnerOptions& options)
    : parts_(std::make_unique<Parts>(target, recipe, options)) {
  restart();
}

ForeignRunner::~ForeignRunner() = default;

void ForeignRunner::restart() {
  parts_->open();
  parts_->program->program().hold();
}

void ForeignRunner::revive() {
  if (parts_->program == nullptr || parts_->program->program().wait(0)) restart();
}

void ForeignRunner::time_saves(bool saves_are_timed) { parts_->times_saves = saves_are_timed; }

void ForeignRunner::work_until(int64_t until_ns) { parts_->options.deadline_ns = until_ns; }

const ForeignRecipe& ForeignRunner::recipe() const { return parts_->recipe; }

Block ForeignRunner::run(int64_t steps) {
  using Came = Parts::Came;
  Parts& parts = *parts_;
  Block total;
  parts.program->program().go_on();
  for (int64_t left = steps; left > 0;) {
    const int64_t piece = parts.most_steps == 0 ? left : std::min(left, parts.most_steps);
    const double stolen = stolen_seconds();
    const Came came = parts.go(piece, parts.times_saves);
    if (came == Came::kEnded) {
      // Even from its beginning it was too short.
      if (parts.is_fresh && piece == 1)
        throw parts.program->failure("it ends before a step can be timed");
      if (parts.is_fresh) parts.most_steps = piece / 2;
      parts.open();
      continue;
    }
    const attach::GateBlock& block = parts.gate().block();
    if (came == Came::kOther || block.source != parts.source) {
      if (!parts.warm()) parts.open();
      continue;
    }
    parts.is_fresh = false;
    left -= piece;
    const double share = static_cast<double>(piece) / static_cast<double>(block.steps);
    total.seconds += share * block.seconds;
    total.waited_seconds += share * block.waited_seconds;
    total.stolen_seconds += stolen_seconds() - stolen;
    total.switches += block.switches;
    parts.note_breaks(block);
  }
  parts.program->program().hold();
  return total;
}

int64_t least_block_steps(int64_t batches_ahead) {
  return std::max<int64_t>(1, kQueuesOfBlock * batches_ahead);
}

int64_t ForeignRunner::least_steps() const { return least_block_steps(parts_->queue); }

attach::ProcessFacts ForeignRunner::facts() const {
  return parts_->program->facts().value_or(attach::ProcessFacts{});
}

double ForeignRunner::open_seconds() const { return parts_->open_seconds; }

int64_t ForeignRunner::breaks() const { return parts_->break_count; }

double ForeignRunner::break_seconds() const {
  return parts_->break_seconds.empty() ? 0 : median(parts_->break_seconds);
}

int64_t ForeignRunner::whole_steps() const { return parts_->whole_steps; }

double ForeignRunner::run_seconds(double step_seconds) const {
  return whole_steps() > 0 ? timed_run_seconds(whole_steps(), step_seconds) : 0;
}

pid_t ForeignRunner::pid() const { return parts_->program->program().pid(); }

int64_t ForeignRunner::peak_bytes() const { return attach::tree_peak_bytes(pid()); }

// A program that would end before it is warm is taken for warm after a part of its steps.
double timed_run_seconds(int64_t steps, double step_seconds, const ForeignRunnerOptions& options) {
  const double run = static_cast<double>(steps) * step_seconds;
  const double warm =
      std::max(options.warm_seconds, static_cast<double>(options.warm_steps) * step_seconds);
  const double timed = run > warm ? run - warm : run - run / static_cast<double>(kLeastSteps);
  return std::max(timed, step_seconds);
}

TrialOptions foreign_trial_options(int64_t until_ns,
                                   uint64_t seed,
                                   const ForeignRunner& before,
                                   const ForeignRunner& after) {
  TrialOptions options = trial_until(until_ns, seed);
  options.block_seconds = kForeignBlockSeconds;
  options.least_steps = std::max(before.least_steps(), after.least_steps());
  return options;
}

}  // namespace ridge
