// The guard of `ridge optimize -- python train.py` alone, without a trial: the runs that it
// compares, and its verdict as a line of JSON. bench/guard_rates.py calls it for each of its cases.
//
// Usage: bench_guard_alone KEEP STEPS CLASS OTHER_THREADS RECIPE -- COMMAND...
//   KEEP           folder for records; a run whose record is there is not made again. Of one
//   command
//                  and one number of steps.
//   CLASS          1 or 2, as the change declares
//   OTHER_THREADS  number of threads of a control; 0: none
//   RECIPE         file of a recipe, in which any variable may stand
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ridge/attach/process/program.h"
#include "ridge/attach/run_record.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/tune/pytorch/program.h"
#include "ridge/tune/pytorch/reference.h"

namespace {

namespace fs = std::filesystem;
using ridge::ForeignRun;
using ridge::attach::RunRecord;

constexpr double kMostSeconds = 300;
constexpr size_t kAtOnce = 2;
constexpr int kPollMilliseconds = 20, kEndMilliseconds = 60'000;

struct Request {
  fs::path keep;
  int64_t steps = 0;
  ridge::SemanticClass semantic_class{};
  int64_t other_threads = 0;
  ridge::ForeignRecipe recipe;
  std::optional<ridge::ForeignTarget> target{};
};

fs::path place_of(const Request& request, const ForeignRun& run) {
  const std::string recipe = run.recipe.empty() ? "plain" : ridge::recipe_hash(run.recipe);
  return request.keep /
         fmt::format("{}-{}-{}", recipe, run.reseed, run.nudge > 0 ? std::ilogb(run.nudge) : 0);
}

// A knob that does nothing would pass every guard.
void check_applied(const ForeignRun& run, const ridge::attach::ShimFolder& shim) {
  std::set<std::string> applied;
  std::string others;
  for (const ridge::attach::ProcessFacts& facts : shim.facts())
    for (const ridge::attach::KnobFacts& knob : facts.knobs) {
      if (knob.state == "applied")
        applied.insert(knob.key);
      else
        others += fmt::format(" {}: {};", knob.key, knob.text);
    }
  for (const auto& [key, value] : run.recipe.changes())
    if (!applied.contains(key))
      throw std::runtime_error(fmt::format("{} was not applied:{}", key, others));
}

class Runs {
 public:
  explicit Runs(const Request& request) : request_(request) {}

  std::vector<RunRecord> record(const ridge::ForeignReference::Runs& runs) {
    std::vector<RunRecord> records(runs.size());
    std::vector<size_t> missing;
    for (size_t i = 0; i < runs.size(); ++i) {
      const std::string folder = folder_of(runs, i).string();
      if (auto kept = ridge::attach::read_record_in(folder))
        records[i] = std::move(*kept);
      else
        missing.push_back(i);
    }
    for (size_t first = 0; first < missing.size(); first += kAtOnce)
      make(runs,
           std::span(missing).subspan(first, std::min(kAtOnce, missing.size() - first)),
           records);
    return records;
  }
  int64_t made() const { return made_; }

 private:
  // The program as it is runs twice in one list.
  fs::path folder_of(const ridge::ForeignReference::Runs& runs, size_t i) const {
    fs::path folder = place_of(request_, runs[i]);
    for (size_t before = 0; before < i; ++before)
      if (place_of(request_, runs[before]) == place_of(request_, runs[i])) folder += "-again";
    return folder;
  }

  void make(const ridge::ForeignReference::Runs& runs,
            std::span<const size_t> places,
            std::vector<RunRecord>& records) {
    std::vector<std::unique_ptr<ridge::ForeignProgram>> programs;
    for (const size_t i : places)
      programs.push_back(std::make_unique<ridge::ForeignProgram>(
          *request_.target,
          runs[i].recipe,
          ridge::attach::ShimOptions{.profiled_steps = 0,
                                     .record_steps = request_.steps,
                                     .reseed = runs[i].reseed,
                                     .nudge = runs[i].nudge},
          request_.steps + 1));
    for (size_t k = 0; k < places.size(); ++k) {
      const size_t i = places[k];
      records[i] = finished(*programs[k]);
      // Facts of knobs are whole when it has ended, which is a step later.
      programs[k]->program().wait(kEndMilliseconds);
      check_applied(runs[i], programs[k]->shim());
      keep(*programs[k], folder_of(runs, i));
      ++made_;
    }
  }

  static RunRecord finished(ridge::ForeignProgram& program) {
    const int64_t until = ridge::now_ns() + static_cast<int64_t>(kMostSeconds * 1e9);
    for (;;) {
      const auto end = program.program().wait(kPollMilliseconds);
      auto record = ridge::attach::read_record(program.shim());
      if (record && record->is_whole) return *record;
      if (end && end->exit_code != 0) throw program.failure(*end);
      if (end) return record.value_or(RunRecord{});
      if (ridge::now_ns() > until) throw program.failure("a run did not end in time");
    }
  }

  // Under its own name only when it is whole.
  static void keep(const ridge::ForeignProgram& program, const fs::path& folder) {
    const fs::path part = folder.string() + ".part";
    fs::remove_all(part);
    fs::create_directories(part);
    for (const fs::directory_entry& entry : fs::directory_iterator(program.shim().path()))
      if (entry.path().filename().string().starts_with("record_"))
        fs::copy_file(entry.path(), part / entry.path().filename());
    fs::rename(part, folder);
  }

  const Request& request_;
  int64_t made_ = 0;
};

int run(std::span<char*> words) {
  constexpr size_t kCommand = 7;
  if (words.size() <= kCommand || std::string_view(words[kCommand - 1]) != "--") {
    fmt::print(stderr,
               "Usage: bench_guard_alone KEEP STEPS CLASS OTHER_THREADS RECIPE -- COMMAND...\n");
    return 2;
  }
  Request request;
  request.keep = words[1];
  request.steps = std::atoll(words[2]);
  request.semantic_class = static_cast<ridge::SemanticClass>(std::atoi(words[3]));
  request.other_threads = std::atoll(words[4]);
  request.recipe = ridge::read_foreign_recipe_file(words[5], ridge::RecipeTrust::kAnyVariable);
  request.target = {
      .command = ridge::attach::CommandTemplate({words.begin() + kCommand, words.end()}),
      .consent = ridge::attach::Consent::kRerun,
      .supervisor = RIDGE_PROGRAM};
  Runs runs(request);
  ridge::ForeignReference reference(
      [&](const ridge::ForeignReference::Runs& wanted) { return runs.record(wanted); },
      false,
      request.other_threads);
  const int64_t begun_ns = ridge::now_ns();
  const ridge::GuardOutcome answer = reference.judge(request.recipe, request.semantic_class);
  std::string text;
  ridge::JsonWriter writer(text);
  writer.begin_object()
      .field("passed", answer.passed)
      .field("can_tell", answer.can_tell)
      .field("text", answer.text)
      .field("runs", runs.made())
      .field("seconds", static_cast<double>(ridge::now_ns() - begun_ns) * 1e-9)
      .end_object()
      .finish();
  fmt::print("{}\n", text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv, static_cast<size_t>(argc)});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_guard_alone: {}\n", error.what());
    return 1;
  }
}
