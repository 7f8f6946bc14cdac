// Knobs of loaders and of the process, in real programs of PyTorch: whatever is done to a loader,
// the program sees the same batches and draws the same random numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "ridge/attach/shim.h"
#include "ridge/base/cpu/cpu_info.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCache = R"({"loader.cache":true})";
constexpr const char* kBackground = R"({"loader.background":true})";
constexpr const char* kSaves = R"({"save.background":true})";
constexpr const char* kWorkers =
    R"({"loader.workers":2,"loader.prefetch":3,"loader.persistent":true})";

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Ended {
  int code = -1;
  std::string out, err;
  ProcessFacts facts{};  ///< Facts of the one process that has torch; with a shim.
};

class Knobs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
  }

  /// A program of tests/attach/programs, under the shim where there are options.
  Ended run(const std::string& words, const ShimOptions* options) const {
    const test::TempFolder folder;
    std::optional<ShimFolder> shim;
    std::string command = "cd '" + folder.path().string() + "' && exec env -u PYTHONPATH";
    if (options != nullptr) {
      shim.emplace(*options);
      for (const auto& [name, value] : shim->environment())
        command += " '" + name + "=" + value + "'";
    }
    command += " PYTHONDONTWRITEBYTECODE=1 timeout -k 1 280 '" + python_ + "' '" +
               fs::absolute("tests/attach/programs").string() + "/'" + words +
               " >.out 2>.err </dev/null";
    const int status = std::system(command.c_str());
    Ended ended{WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                text_of(folder / ".out"),
                text_of(folder / ".err")};
    if (shim) {
      const std::vector<ProcessFacts> all = shim->facts();
      EXPECT_EQ(all.size(), processes_) << ended.err;
      if (!all.empty()) ended.facts = all.front();
    }
    return ended;
  }
  Ended plain(const std::string& words) const { return run(words, nullptr); }
  Ended with(const std::string& recipe, const std::string& words) const {
    const ShimOptions options{.profiled_steps = 0, .recipe = recipe};
    return run(words, &options);
  }
  /// With the recipe the program prints what it prints without.
  Ended same(const std::string& recipe, const std::string& words) const {
    const Ended without = plain(words), ended = with(recipe, words);
    EXPECT_EQ(without.code, 0) << without.err;
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_GT(without.out.size(), 300u);
    EXPECT_EQ(ended.out, without.out);
    reads_without_ = reads(without);
    return ended;
  }

  static int64_t number_behind(const std::string& word, const Ended& ended) {
    const size_t at = ended.err.rfind(word);
    return at == std::string::npos ? -1 : std::stoll(ended.err.substr(at + word.size()));
  }
  /// Samples that were made in the program's own process.
  static int64_t reads(const Ended& ended) { return number_behind("read ", ended); }
  /// Samples that were made on another thread than the one that steps.
  static int64_t made_elsewhere(const Ended& ended) { return number_behind("elsewhere ", ended); }

  std::string python_ = test::peers_python();
  mutable int64_t reads_without_ = 0;
  size_t processes_ = 1;  ///< Processes of the program that import torch by themselves.
};

KnobFacts fact(const Ended& ended, const std::string& key) {
  for (const KnobFacts& knob : ended.facts.knobs)
    if (knob.key == key) return knob;
  ADD_FAILURE() << "nothing was said of " << key;
  return {};
}

std::string notes(const Ended& ended) {
  std::string all;
  for (const std::string& note : ended.facts.notes) all += note + "\n";
  return all;
}

// ---- loader.cache ----

TEST_F(Knobs, BatchesFromMemoryAreTheSame) {
  const Ended ended = same(kCache, "knobs_loader.py served");
  const KnobFacts cache = fact(ended, "loader.cache");
  EXPECT_EQ(cache.state, "applied");
  EXPECT_NE(cache.text.find("and 11 more"), std::string::npos) << cache.text;
  EXPECT_NE(cache.site.find("knobs_loader.py:"), std::string::npos) << cache.site;
  EXPECT_GT(cache.seconds, 0);
  // Three epochs are read once, and some samples again, to be compared.
  EXPECT_LT(reads(ended), reads_without_ * 2 / 3);
}

TEST_F(Knobs, BatchesFromMemoryAreTheSameWhateverIsAskedFor) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const char* what : {"permuted", "eager", "odd", "together", "inference"}) {
    SCOPED_TRACE(what);
    const Ended ended = same(kCache, std::string("knobs_loader.py ") + what);
    EXPECT_EQ(fact(ended, "loader.cache").state, "applied");
  }
}

TEST_F(Knobs, MemoryTakesThePlaceOfWorkers) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = same(kCache, "knobs_loader.py own");
  EXPECT_EQ(fact(ended, "loader.cache").state, "applied");
  EXPECT_EQ(notes(ended).find("forked"), std::string::npos);
}

TEST_F(Knobs, ALoaderForEvaluationIsLeftAlone) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = same(kCache, "knobs_loader.py two");
  EXPECT_EQ(fact(ended, "loader.cache").text.find("more"), std::string::npos);
  // 30 of each epoch of evaluation.
  EXPECT_GE(reads(ended), 30 + 40);
}

TEST_F(Knobs, ALoaderForEachEpochIsFilledOnce) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = same(kCache, "knobs_loader.py anew");
  EXPECT_EQ(fact(ended, "loader.cache").state, "applied");
  EXPECT_LT(reads(ended), reads_without_ * 2 / 3);
  const ShimOptions probing{.profiled_steps = 0, .probes = true};
  const Ended probed = run("knobs_loader.py anew", &probing);
  for (const KnobOffer& offer : probed.facts.offers)
    EXPECT_EQ(offer.refusal.find("no DataLoader"), std::string::npos) << offer.key;
}

// Filled for one epoch each, memory would cost more than it saves.
TEST_F(Knobs, ADatasetForEachEpochIsNotKept) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = same(kCache, "knobs_loader.py others");
  EXPECT_EQ(fact(ended, "loader.cache").state, "refused");
  EXPECT_EQ(fact(ended, "loader.cache").text.rfind("each epoch makes another dataset", 0), 0u)
      << fact(ended, "loader.cache").text;
  EXPECT_LT(reads(ended), 2 * reads_without_);
}

TEST_F(Knobs, ADatasetThatChangesIsReadAgain) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const char* what : {"changing", "silent"}) {
    SCOPED_TRACE(what);
    const Ended ended = same(kCache, std::string("knobs_loader.py ") + what);
    const KnobFacts cache = fact(ended, "loader.cache");
    EXPECT_EQ(cache.state, "refused");
    EXPECT_EQ(cache.text.rfind("the dataset has changed", 0), 0u) << cache.text;
  }
}

TEST_F(Knobs, OneSampleThatDrawsRandomNumbersIsNoticed) {
  const Ended ended = same(kCache, "knobs_loader.py rare");
  EXPECT_EQ(fact(ended, "loader.cache").state, "refused");
  EXPECT_EQ(fact(ended, "loader.cache").text, "its samples draw random numbers (torch)");
}

// ---- loader.workers, .prefetch, .persistent ----

TEST_F(Knobs, BatchesOfWorkersAreTheSame) {
  const Ended ended = same(kWorkers, "knobs_loader.py served");
  for (const char* key : {"loader.workers", "loader.prefetch", "loader.persistent"})
    EXPECT_EQ(fact(ended, key).state, "applied") << key;
  EXPECT_EQ(reads(ended), 0);
  // Two for each of twelve loaders: they stay over three epochs.
  EXPECT_NE(notes(ended).find("24 processes were forked"), std::string::npos) << notes(ended);
  for (const LoaderFacts& loader : ended.facts.loaders) {
    EXPECT_EQ(loader.workers, 2);
    EXPECT_EQ(loader.prefetch, 3);
    EXPECT_TRUE(loader.is_persistent);
  }
}

TEST_F(Knobs, WorkersThatStayHearOfAnotherDataset) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const char* what : {"changing", "silent"}) {
    SCOPED_TRACE(what);
    const Ended ended = same(kWorkers, std::string("knobs_loader.py ") + what);
    EXPECT_EQ(fact(ended, "loader.persistent").state, "applied");
    EXPECT_EQ(reads(ended), 0);
  }
}

TEST_F(Knobs, WorkersAreForTheLoaderThatFeedsSteps) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = same(kWorkers, "knobs_loader.py two");
  EXPECT_EQ(ended.err.rfind("2 0\n", 0), 0u) << ended.err;
  EXPECT_EQ(reads(ended), 30);
}

TEST_F(Knobs, PersistenceNeedsWorkers) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended =
      same(R"({"loader.persistent":true,"loader.prefetch":4})", "knobs_loader.py inference");
  EXPECT_EQ(fact(ended, "loader.persistent").text, "there are no workers");
  EXPECT_EQ(fact(ended, "loader.prefetch").state, "refused");
}

TEST_F(Knobs, MemoryComesBeforeWorkers) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended =
      same(R"({"loader.cache":true,"loader.workers":2})", "knobs_loader.py permuted");
  EXPECT_EQ(fact(ended, "loader.cache").state, "applied");
  EXPECT_EQ(fact(ended, "loader.workers").state, "refused");
}

TEST_F(Knobs, AProcessThatForksGoesOnAlone) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const char* recipe : {kCache, kWorkers}) {
    SCOPED_TRACE(recipe);
    same(recipe, "knobs_loader.py forked");
  }
}

// ---- loader.background ----

TEST_F(Knobs, BatchesOfAThreadAreTheSame) {
  const Ended ended = same(kBackground, "background_loader.py crops");
  EXPECT_EQ(fact(ended, "loader.background").state, "applied");
  EXPECT_EQ(made_elsewhere(ended), 3 * 80);
}

TEST_F(Knobs, WhatAThreadMadeIsTakenBackBeforeItShows) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const char* what : {"seeded", "left", "other", "looks", "forks", "fails"}) {
    SCOPED_TRACE(what);
    const Ended ended = same(kBackground, std::string("background_loader.py ") + what);
    EXPECT_EQ(fact(ended, "loader.background").state, "applied");
    EXPECT_GT(made_elsewhere(ended), 0);
  }
}

TEST_F(Knobs, AProgramMayEndWhileBatchesAreAhead) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = same(kBackground, "background_loader.py ends");
  EXPECT_EQ(ended.err, fmt::format("elsewhere {}\n", made_elsewhere(ended)));
}

TEST_F(Knobs, AThreadIsGivenUpBeforeABitIsAnother) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::map<std::string, std::string> reasons = {
      {"draws", "the program draws random numbers between batches (torch)"},
      {"changes", "the program changes the dataset between batches (its seen)"},
      {"sampler", "its Drawing draws random numbers between batches"},
      {"bound", "samples cannot be made on another thread: made in another thread"},
  };
  for (const auto& [what, reason] : reasons) {
    SCOPED_TRACE(what);
    const Ended ended = same(kBackground, "background_loader.py " + what);
    EXPECT_EQ(fact(ended, "loader.background").state, "refused");
    EXPECT_EQ(fact(ended, "loader.background").text, reason);
    EXPECT_LE(made_elsewhere(ended), 8);
  }
}

// Nobody could know before; the guard of a class of equal bits compares what comes of it.
TEST_F(Knobs, AThreadTellsWhatItLearntTooLate) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = with(kBackground, "background_loader.py late");
  EXPECT_EQ(ended.code, 0) << ended.err;
  const KnobFacts knob = fact(ended, "loader.background");
  EXPECT_EQ(knob.state, "refused");
  EXPECT_NE(knob.text.find("some batches may have been changed"), std::string::npos) << knob.text;
}

TEST_F(Knobs, AThreadLeavesLoadersOfOthersAlone) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const char* what : {"served", "together", "forked", "odd", "inference"}) {
    SCOPED_TRACE(what);
    same(kBackground, std::string("knobs_loader.py ") + what);
  }
  const Ended own = same(kBackground, "knobs_loader.py own");
  EXPECT_EQ(fact(own, "loader.background").text, "it has workers");
}

// ---- save.background ----

TEST_F(Knobs, FilesOfAThreadAreTheSame) {
  for (const char* what : {"saves", "readers"}) {
    if (what != std::string("saves") && !test::is_full_scale()) continue;
    SCOPED_TRACE(what);
    const Ended ended = same(kSaves, std::string("knob_save.py ") + what);
    EXPECT_EQ(fact(ended, "save.background").state, "applied");
    EXPECT_GE(made_elsewhere(ended), 7);
  }
}

TEST_F(Knobs, FilesThatAreWrittenInPlaceAreTheSame) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const char* what : {"shared", "in_place"}) same(kSaves, std::string("knob_save.py ") + what);
}

TEST_F(Knobs, ASaveThatFailsIsToldByTheNextOneOrAtTheEnd) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended fails = with(kSaves, "knob_save.py fails");
  EXPECT_EQ(fails.code, 0) << fails.err;
  EXPECT_NE(fails.out.find("save 2 failed\n"), std::string::npos) << fails.out;
  EXPECT_TRUE(fails.out.ends_with("\n3\n")) << fails.out;
  const Ended ends = with(kSaves, "knob_save.py ends");
  EXPECT_EQ(ends.code, 1) << ends.err;
  EXPECT_NE(ends.err.find("Error"), std::string::npos) << ends.err;
}

TEST_F(Knobs, AFileIsNeverHalfWritten) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  processes_ = 2;
  const Ended ended = with(kSaves, "knob_save.py killed");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(ended.out.ends_with("\n2000000\n")) << ended.out;
}

// ---- the process ----

int first_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  int cpu = 0;
  while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &set)) ++cpu;
  return cpu;
}

TEST_F(Knobs, TheProcessIsAsTheRecipeSays) {
  const Ended ended =
      with(fmt::format("{{\"threads\":2,\"interop_threads\":3,\"cpus\":\"{}\",\"matmul.tf32\":true,"
                       "\"cudnn.benchmark\":true,\"loader.cache\":false}}",
                       first_cpu()),
           "knobs_process.py");
  EXPECT_EQ(ended.facts.knobs.size(), 5u);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "2 3 1 1 1\n");
  EXPECT_EQ(fact(ended, "threads").state, "applied");
  EXPECT_NE(fact(ended, "threads").site.find("knobs_process.py:"), std::string::npos);
  EXPECT_EQ(fact(ended, "interop_threads").state, "applied");
  EXPECT_EQ(fact(ended, "cpus").state, "applied");
  EXPECT_EQ(fact(ended, "matmul.tf32").text, "the program does not use CUDA");
  EXPECT_EQ(fact(ended, "cudnn.benchmark").state, "refused");
}

TEST_F(Knobs, CpusThatAreNotThereAreRefused) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = with(R"({"cpus":"0,100000","no.such":1})", "knobs_process.py");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(fact(ended, "cpus").text, "the process may not use CPU 100000");
  EXPECT_NE(notes(ended).find("no knob is called no.such"), std::string::npos);
}

// ---- the probe ----

/// Lines of knobs_probe.py: "CASE KEY rest", by case and key.
using Offers = std::map<std::pair<std::string, std::string>, std::set<std::string>>;

Offers offers_in(const std::string& text) {
  Offers offers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, key, rest;
    words >> name >> key;
    std::getline(words, rest);
    offers[{name, key}].insert(rest.substr(std::min<size_t>(1, rest.size())));
  }
  return offers;
}

class Probed : public Knobs {
 protected:
  void SetUp() override {
    Knobs::SetUp();
    if (IsSkipped()) return;
    const ShimOptions options{.profiled_steps = 0, .probes = true};
    ended_ = run("knobs_probe.py", &options);
    ASSERT_EQ(ended_.code, 0) << ended_.err;
    offers_ = offers_in(ended_.out);
  }

  /// "" where some value is offered.
  std::string refusal(const std::string& name, const std::string& key) {
    const auto found = offers_.find({name, key});
    if (found == offers_.end()) return "nothing was said";
    const std::string& first = *found->second.begin();
    return first.starts_with("refused: ") ? first.substr(9) : "";
  }
  /// Classes of the offered values.
  std::set<char> classes(const std::string& name, const std::string& key) {
    std::set<char> found;
    for (const std::string& offer : offers_[{name, key}])
      if (const size_t at = offer.find(' '); at != std::string::npos && at + 1 < offer.size())
        found.insert(offer[at + 1]);
    return found;
  }

  /// One CPU is no place for workers, and the refusal says so.
  void expect_workers(const std::string& name, const std::set<char>& expected) {
    if (usable_cpus() == 1)
      EXPECT_EQ(refusal(name, "loader.workers"), "there is one CPU for each process") << name;
    else
      EXPECT_EQ(classes(name, "loader.workers"), expected) << name;
  }

  Ended ended_;
  Offers offers_;
};

TEST_F(Probed, OffersWhatSuitsTheLoader) {
  EXPECT_TRUE(ended_.facts.is_probed);
  EXPECT_EQ(ended_.out.find("drew random numbers"), std::string::npos);
  const std::set<char> same_bits = {'0'}, trajectory = {'3'};
  for (const char* name : {"rows", "permuted", "places", "halves", "text"}) {
    EXPECT_EQ(classes(name, "loader.cache"), same_bits) << name;
    expect_workers(name, same_bits);
    EXPECT_EQ(classes(name, "loader.persistent"), same_bits) << name;
  }
  for (const char* name : {"torch", "numpy", "random", "own", "entropy", "shared_stream"}) {
    expect_workers(name, trajectory);
    EXPECT_EQ(classes(name, "loader.persistent"), trajectory) << name;
    EXPECT_NE(refusal(name, "loader.cache"), "") << name;
    EXPECT_EQ(refusal(name, "loader.background").empty(), false) << name;
  }
  if (usable_cpus() > 1) {
    EXPECT_EQ(classes("quiet", "loader.background"), same_bits);
    EXPECT_EQ(classes("quiet_file", "loader.background"), same_bits);
  }
  EXPECT_EQ(refusal("rows", "loader.pin"), "the program does not use CUDA");
  EXPECT_EQ(refusal("workers", "loader.prefetch"), "the program has set it");
}

TEST_F(Probed, SaysWhyNot) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::map<std::pair<std::string, std::string>, std::string> reasons = {
      {{"torch", "cache"}, "samples draw random numbers (torch): each has to be made anew"},
      {{"numpy", "cache"}, "samples draw random numbers (numpy.random): each has to be made anew"},
      {{"own", "cache"},
       "samples draw random numbers (a generator of its own): each has to be made anew"},
      {{"entropy", "cache"}, "samples differ when they are read again"},
      {{"counting", "cache"}, "the dataset changes as it is read (its reads)"},
      {{"stream", "cache"}, "an iterable dataset has no samples by number"},
      {{"unbatched", "cache"}, "the dataset makes its batches itself"},
      {{"torch", "background"}, "the program draws random numbers between batches (torch)"},
      {{"stream", "background"}, "an iterable dataset has no samples by number"},
      {{"unbatched", "background"}, "the dataset makes its batches itself"},
      {{"workers", "background"}, "it has workers"},
      {{"quiet_drawing", "background"}, "its Drawing draws random numbers between batches"},
      {{"file", "workers"}, "the dataset has an open file (its file): workers would share it"},
      {{"nested", "workers"},
       "the dataset has an open file (its dataset.file): workers would share it"},
      {{"closure", "workers"},
       "the dataset has an open file (its make.file): workers would share it"},
      {{"descriptor", "workers"},
       "reading a sample moves the offset of an open file (samples.bin): workers would share it"},
      {{"sqlite", "workers"},
       "the dataset has an open sqlite3.Connection (its table): workers would share it"},
      {{"stream", "workers"},
       "an iterable dataset that does not share itself out: workers would repeat it"},
      {{"init", "workers"}, "its worker_init_fn has not been called so far"},
      {{"eager", "workers"},
       "its EagerHalves draws random numbers at once, and workers iterate it twice"},
      {{"drawing", "workers"}, "its Drawing draws random numbers between batches"},
      {{"without", "workers"}, "no DataLoader feeds the steps"},
      {{"evaluated", "cache"},
       "the loader that feeds the steps is not told from others when it is iterated"},
  };
  for (const auto& [where, reason] : reasons)
    EXPECT_EQ(refusal(where.first, "loader." + where.second), reason) << where.first;
  EXPECT_EQ(refusal("giant", "loader.cache").rfind("its samples take 2000.0 GB", 0), 0u);
  EXPECT_EQ(refusal("slow", "loader.cache").rfind("reading its samples once would take", 0), 0u);
}

}  // namespace
}  // namespace ridge::attach
