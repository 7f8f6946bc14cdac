// The judge on this machine: many claims whose right verdict is known.
//
//   bench_trial_series RIDGE CONFIG [RUNS]
//
// A series claims what `ridge optimize` would: what a trial accepts, where a proof in two fresh
// processes accepts it, too. A trial alone says something about its two processes: those of one
// program differ for as long as they live, by more than 1 %, the least gain that counts, in one
// pair of ten.
//
// Of RUNS (100) each: the same program twice, with six changes that change nothing, by itself and
// beside a hog that takes a CPU now and then; and half as many with a variant that is 3 % slower,
// and 5 % faster, by waiting after its blocks. Exits with 1 where more than a twentieth of the
// first are claimed, one of the slower ones, or less than four fifths of the faster ones.
#include <fmt/core.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "bench/exit_code.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/io/file.h"
#include "ridge/proof/trial.h"
#include "ridge/tune/engine/resolved_config.h"
#include "ridge/tune/engine/worker.h"

namespace {

using namespace ridge;

constexpr int64_t kMostPairs = 300;

// For a configuration whose loader has no threads.
constexpr std::array<std::array<const char*, 2>, 6> kNothing = {{{"checkpoint.keep", "3"},
                                                                 {"loader.prefetch", "5"},
                                                                 {"train.eval_batch", "32"},
                                                                 {"metrics.every", "999983"},
                                                                 {"train.eval_every", "999983"},
                                                                 {"train.out", "nowhere"}}};

// Takes one CPU for about half of the time, in stretches of up to 0.4 s.
class Hog {
 public:
  Hog() : thread_([this] { work(); }) {}
  ~Hog() {
    stop_ = true;
    thread_.join();
  }

 private:
  void work() {
    uint64_t state = 1;
    while (!stop_) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto stretch = static_cast<int64_t>(state >> 33) % 400'000'000;
      const int64_t until = now_ns() + stretch;
      if ((state >> 32 & 1) != 0)
        std::this_thread::sleep_for(std::chrono::nanoseconds(stretch));
      else
        while (now_ns() < until && !stop_) {
        }
    }
  }
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// A runner that takes `factor` times as long as the other.
class Slowed final : public Runner {
 public:
  Slowed(Runner& runner, double factor) : runner_(runner), factor_(factor) {}
  Block run(int64_t steps) override {
    Block block = runner_.run(steps);
    const int64_t start = now_ns();
    const auto wait = static_cast<int64_t>(block.seconds * (factor_ - 1) * 1e9);
    while (now_ns() - start < wait) {
    }
    block.seconds += static_cast<double>(now_ns() - start) * 1e-9;
    return block;
  }

 private:
  Runner& runner_;
  double factor_;
};

class Series {
 public:
  Series(std::string program, std::string config)
      : program_(std::move(program)), text_(read_file(config)) {}

  /// How many of `runs` are claimed; factors are of the times before and after.
  int claimed(const char* name, int runs, double before_factor, double after_factor) {
    int accepted = 0, claimed = 0, open_verdicts = 0;
    int64_t pairs = 0, dropped = 0;
    for (int i = 0; i < runs; ++i) {
      Recipe recipe;
      const auto& change = kNothing[static_cast<size_t>(i) % kNothing.size()];
      recipe.set(change[0], change[1]);
      const TrialResult trial = compare_fresh(recipe, before_factor, after_factor);
      open_verdicts += trial.verdict == Verdict::kOpen;
      pairs += static_cast<int64_t>(trial.pairs.size());
      dropped += trial.dropped;
      if (trial.verdict != Verdict::kFaster) continue;
      ++accepted;
      const TrialResult proof = compare_fresh(recipe, before_factor, after_factor);
      claimed += proof.verdict == Verdict::kFaster;
    }
    fmt::print(
        "{:<34} {:2d} of {} claimed, {} accepted by a trial, {} open; {:.0f} pairs a trial, {} "
        "dropped\n",
        name,
        claimed,
        runs,
        accepted,
        open_verdicts,
        static_cast<double>(pairs) / runs,
        dropped);
    std::fflush(stdout);
    return claimed;
  }

 private:
  TrialResult compare_fresh(const Recipe& recipe, double before_factor, double after_factor) {
    const auto before = open({}), after = open(recipe);
    Slowed slow_before(*before, before_factor), slow_after(*after, after_factor);
    TrialOptions options;
    options.seed = seed_++;
    options.cpus = usable_cpus();
    options.most_pairs = kMostPairs;
    return compare(slow_before, slow_after, options);
  }

  std::unique_ptr<WorkerProcess> open(const Recipe& recipe) const {
    const ResolvedConfig config = resolve_config(text_, "the configuration", recipe);
    return std::make_unique<WorkerProcess>(
        WorkerOptions{.program = program_}, config.toml, int64_t{0});
  }

  std::string program_, text_;
  uint64_t seed_ = 1;
};

int run(const std::string& program, const std::string& config, int runs) {
  Series series(program, config);
  bool right = true;
  right &= series.claimed("5 % faster", runs / 2, 1.05, 1) * 5 >= runs / 2 * 4;
  right &= series.claimed("3 % slower", runs / 2, 1, 1.03) == 0;
  right &= series.claimed("nothing changes", runs, 1, 1) <= runs / 20;
  const Hog hog;
  right &= series.claimed("nothing changes, beside a CPU hog", runs, 1, 1) <= runs / 20;
  fmt::print("{}\n", right ? "all as they should be" : "NOT as they should be");
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    fmt::print(stderr, "usage: bench_trial_series RIDGE CONFIG [RUNS]\n");
    return 2;
  }
  return ridge::bench::exit_code(
      [&] { return run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 100); });
}
