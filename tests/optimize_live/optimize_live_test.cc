// `ridge optimize -- python train.py` with real PyTorch, as a user runs it. What gains depends on
// the machine and on what else runs on it: looked at is what must not be kept, and what is left
// behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/tune/pytorch/recipe.h"
#include "tests/cli/ridge_process.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;
using test::Ended;
using test::RidgeProcess;
using Words = std::vector<std::string>;

// Seconds for what has to come to a certain trial: on a busy machine a start alone takes fifteen.
constexpr int kBudget = 300;
// Seconds for one trial and its proof at least: with less nothing is tried.
constexpr int kShortBudget = 150;

// Writes into the working folder as most programs do, all the time; reads what lies there.
constexpr const char* kWriter = R"(
import sys, torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self):
        self.rows = torch.tensor([float(line) for line in open('rows.txt')]).view(-1, 16)
    def __len__(self):
        return 20 * len(self.rows)
    def __getitem__(self, index):
        row = self.rows[index % len(self.rows)]
        return (row - row.mean()) / row.std(), row.sum()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
step = 0
while step < 1000000:
    for x, y in DataLoader(Rows(), batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            torch.save(model.state_dict(), 'weights.pt')
            print(step, float(loss), file=open('log.txt', 'a'), flush=True)
        step += 1
)";

// Two ranks, each with its half of the samples, which are slow to make.
constexpr const char* kRanks = R"(
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        row = self.rows[index]
        for _ in range(200):
            row = row.roll(1)
        return row, row[:1]

dist.init_process_group('gloo')
torch.manual_seed(0)
body = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
model = DistributedDataParallel(body)
optimizer = torch.optim.Adam(model.parameters())
rows = Rows()
sampler = DistributedSampler(rows)
for epoch in range(100000):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(rows, batch_size=16, sampler=sampler):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
)";

// Batches so small that a step is mostly what it costs whatever its batch.
constexpr const char* kSmallBatches = R"(
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(8000, 16)
y = x[:, :4].sum(1, keepdim=True).tanh() + 0.1 * torch.randn(8000, 1)
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(100000):
    for a, b in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
)";

/// Processes whose command line holds `word`.
std::set<std::string> processes_with(const std::string& word) {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (test::text_of(entry.path() / "cmdline").find(word) != std::string::npos) found.insert(name);
  }
  return found;
}

template <typename Condition>
bool comes_within(std::chrono::seconds limit, Condition condition) {
  for (const auto start = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - start < limit;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return condition();
}

class OptimizeLive : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
    for (const char* name : {"user", "tmp", "home"}) fs::create_directory(folder_ / name);
    std::ofstream rows(user() / "rows.txt");
    for (int i = 0; i < 1024; ++i) rows << (i * 37 % 101) / 10.0 << "\n";
  }

  fs::path user() const { return folder_ / "user"; }

  // All temporary files, ours and the program's, go into a folder of the test.
  std::string shell() const {
    return "export TMPDIR='" + (folder_ / "tmp").string() + "' HOME='" +
           (folder_ / "home").string() + "' HF_HUB_OFFLINE=1; unset XDG_STATE_HOME;";
  }

  std::string script(const std::string& text) {
    const fs::path path = user() / "script.py";
    std::ofstream(path) << text;
    return path.string();
  }

  Words words(Words options, const Words& command) const {
    options.insert(options.begin(), {"optimize", "--json", "--out", folder_ / "out"});
    options.emplace_back("--");
    options.insert(options.end(), command.begin(), command.end());
    return options;
  }
  Ended optimize(Words options, const Words& command, int limit = 900) {
    RidgeProcess process(user(), words(std::move(options), command), shell());
    process.set_limit(std::chrono::seconds(limit));
    return process.wait();
  }
  /// Runs `optimize` with a budget of `seconds`. Where the machine is too slow for that, the error
  /// says so before anything is tried, and the budget is doubled.
  Ended optimize_in(int seconds, Words options, const Words& command) {
    options.insert(options.end(), {"--budget", std::to_string(seconds)});
    Ended ended = optimize(options, command, seconds + 600);
    const bool is_too_small =
        ended.code == 2 && ended.err.find("a budget of ") != std::string::npos;
    if (!is_too_small || seconds >= 4 * kBudget) return ended;
    options.resize(options.size() - 2);
    return optimize_in(2 * seconds, std::move(options), command);
  }

  /// Checks the rules that every report keeps; the object is empty where there is none.
  json report_of(const Ended& ended) {
    json report = json::parse(ended.out, nullptr, false);
    EXPECT_EQ(ended.code, 0) << ended.err;
    if (!report.is_object() || report.value("schema", "") != "ridge.optimize/1") {
      ADD_FAILURE() << ended.out << ended.err;
      return json::object();
    }
    const std::string recipe = report["recipe"];
    EXPECT_EQ(recipe.empty(), !fs::exists(folder_ / "out" / "recipe.toml"));
    if (recipe.empty()) {
      EXPECT_EQ(report["claim"]["speedup"], 1) << report["claim"];
    } else {
      EXPECT_GE(report["claim"]["lo"].get<double>(), 1) << report["claim"];
      EXPECT_FALSE(parse_foreign_recipe(recipe, "the report's recipe").empty());
      EXPECT_EQ(test::text_of(folder_ / "out" / "recipe.toml"), recipe);
    }
    for (const char* name : {"ledger.jsonl", "report.html"})
      EXPECT_TRUE(fs::exists(folder_ / "out" / name)) << name;
    for (const json& trial : report["trials"]) EXPECT_NE(trial["reason"], "") << trial;
    return report;
  }

  static std::set<std::string> verdicts_of(const json& report, const std::string& technique) {
    std::set<std::string> found;
    for (const json& trial : report.value("trials", json::array()))
      if (trial["technique"] == technique) found.insert(trial["verdict"].get<std::string>());
    return found;
  }
  /// Trials that came to a measured end.
  static int tried(const json& report) {
    return static_cast<int>(
        std::ranges::count_if(report.value("trials", json::array()), [](const json& trial) {
          return trial["verdict"] == "kept" || trial["verdict"] == "not_faster" ||
                 trial["verdict"] == "open" || trial["verdict"] == "guard_failed";
        }));
  }

  /// Path: content, of all that the user has; what the harness itself writes is left out.
  std::map<std::string, std::string> tree() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(user())) {
      const std::string name = entry.path().lexically_relative(user());
      if (name != ".out" && name != ".err")
        found[name] = entry.is_regular_file() ? test::text_of(entry.path()) : "";
    }
    return found;
  }

  // PyTorch makes folders of its own there, with and without us.
  void expect_nothing_temporary() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "tmp"))
      if (entry.path().filename().string().starts_with("ridge"))
        ADD_FAILURE() << "left behind: " << entry.path();
  }

  void expect_rejected(const std::string& program, const std::string& knob, bool is_an_error);
  void expect_tuned(const std::string& program);
  void expect_gone(const std::string& mark, int signal);

  test::TempFolder folder_;
  const std::string python_ = test::peers_python();
};

// Nobody can say that the knob is faster on every machine, and what is not faster meets no guard;
// that the guard would not let it pass is for foreign_breaks_test.cc to show.
void OptimizeLive::expect_rejected(const std::string& program,
                                   const std::string& knob,
                                   bool is_an_error) {
  for (const char* name : {program.c_str(), "program.py"})
    fs::copy_file(fs::absolute("tests/attach/programs") / name, user() / name);
  const auto before = tree();
  const Ended ended =
      optimize_in(kBudget, {}, {python_, program, "--steps", "1000000", "--out", "{out}/w.pt"});
  const json report = report_of(ended);
  std::set<std::string> allowed = {"failed", "refused"};
  if (!is_an_error) allowed.insert({"guard_failed", "not_faster", "open"});
  const std::set<std::string> verdicts = verdicts_of(report, knob);
  EXPECT_FALSE(verdicts.empty()) << "not named: " << ended.out;
  for (const std::string& verdict : verdicts)
    EXPECT_TRUE(allowed.contains(verdict)) << knob << " is " << verdict << "\n" << ended.out;
  EXPECT_EQ(report.value("recipe", "").find(knob), std::string::npos);
  EXPECT_GE(tried(report), 1) << ended.err;
  auto after = tree();
  std::erase_if(after, [](const auto& file) { return file.first.starts_with("__pycache__"); });
  EXPECT_EQ(after, before);
  expect_nothing_temporary();
}

TEST_F(OptimizeLive, RejectsWorkersWhereForksShareAnOffset) {
  expect_rejected("break_shared_offset.py", "loader.workers", false);
}
TEST_F(OptimizeLive, RejectsBf16WhereTheLossIsLost) {
  expect_rejected("break_bf16.py", "model.autocast", false);
}
TEST_F(OptimizeLive, RejectsChannelsLastWhereAViewFails) {
  expect_rejected("break_view.py", "model.channels_last", true);
}

void OptimizeLive::expect_tuned(const std::string& program) {
  const auto before = tree();
  const Ended ended = optimize_in(kBudget,
                                  {},
                                  {python_,
                                   fs::absolute("examples/pytorch/" + program).string(),
                                   "--steps",
                                   "1000000",
                                   "--out",
                                   "{out}"});
  const json report = report_of(ended);
  EXPECT_GE(tried(report), 1) << ended.out << ended.err;
  for (const json& trial : report.value("trials", json::array()))
    EXPECT_NE(trial["verdict"], "failed") << trial;
  EXPECT_EQ(tree(), before);
  expect_nothing_temporary();
}

TEST_F(OptimizeLive, TunesLightning) { expect_tuned("train_lightning.py"); }
TEST_F(OptimizeLive, TunesAccelerate) { expect_tuned("train_accelerate.py"); }
TEST_F(OptimizeLive, TunesTheTrainerOfHuggingFace) { expect_tuned("train_hf_trainer.py"); }

// Without leave a line says what they would bring; with it they are tried, and what is claimed is
// of the same samples.
TEST_F(OptimizeLive, LargerBatchesNeedLeave) {
  const Words command = {python_, script(kSmallBatches)};
  const json told = report_of(optimize_in(kBudget, {"--rerun", "--only", "loader.batch"}, command));
  EXPECT_EQ(verdicts_of(told, "loader.batch"), std::set<std::string>{"not_tried"});
  const json notes = told.value("notes", json::array());
  EXPECT_TRUE(std::ranges::any_of(notes, [](const json& note) {
    const std::string text = note;
    return text.starts_with("a batch of ") && text.find("--allow-trajectory") != std::string::npos;
  })) << notes;
  const json tried = report_of(
      optimize_in(kBudget, {"--rerun", "--allow-trajectory", "--only", "loader.batch"}, command));
  EXPECT_GE(OptimizeLive::tried(tried), 1) << tried;
  const std::string recipe = tried.value("recipe", "");
  if (recipe.empty()) return;
  EXPECT_NE(recipe.find("loader.batch = "), std::string::npos) << recipe;
  EXPECT_EQ(tried["claim"]["per_sample"], true);
}

TEST_F(OptimizeLive, TunesRanksOfTorchrun) {
  const std::string text = script(kRanks);
  const Words command = {python_, "-m", "torch.distributed.run", "--nproc-per-node", "2", text};
  const json report = report_of(optimize_in(kBudget, {"--rerun"}, command));
  // Making samples is nine tenths of a step: without the cache nobody would be served.
  EXPECT_TRUE(verdicts_of(report, "loader.cache").contains("kept")) << report;
  for (const json& trial : report.value("trials", json::array()))
    EXPECT_NE(trial["verdict"], "failed") << trial;
  expect_nothing_temporary();
  EXPECT_TRUE(comes_within(std::chrono::seconds(60), [&] { return processes_with(text).empty(); }));
}

TEST_F(OptimizeLive, ASandboxKeepsTheTreeAsItIs) {
  const std::string text = script(kWriter);
  const auto before = tree();
  const Ended ended = optimize_in(kShortBudget, {"--sandbox"}, {python_, text});
  if (ended.code == 2 && ended.err.find("--sandbox") != std::string::npos)
    GTEST_SKIP() << "this system has no sandbox: " << ended.err;
  report_of(ended);
  EXPECT_EQ(tree(), before);
  expect_nothing_temporary();
}

TEST_F(OptimizeLive, ARerunWritesWhatTheProgramWrites) {
  const std::string text = script(kWriter);
  const auto before = tree();
  report_of(optimize_in(kShortBudget, {"--rerun"}, {python_, text}));
  auto after = tree();
  EXPECT_EQ(after.erase("weights.pt") + after.erase("log.txt"), 2U);
  EXPECT_EQ(after, before);
  expect_nothing_temporary();
}

TEST_F(OptimizeLive, WithoutConsentNothingRuns) {
  const Ended ended = optimize({}, {python_, script("open('ran', 'w')")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err.find("error"), ended.err.rfind("error")) << ended.err;
  for (const char* way : {"--sandbox", "--rerun", "{out}"})
    EXPECT_NE(ended.err.find(way), std::string::npos) << ended.err;
  EXPECT_FALSE(fs::exists(user() / "ran"));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(OptimizeLive, AProgramWithoutStepsIsSaid) {
  const Ended ended =
      optimize({"--rerun", "--budget", "30"}, {python_, script("import torch; print('done')")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("step"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("optimizer"), std::string::npos) << ended.err;
  expect_nothing_temporary();
}

TEST_F(OptimizeLive, AProgramThatFailsIsToldInItsOwnWords) {
  const Ended ended = optimize(
      {"--rerun", "--budget", "30"},
      {python_, script("import torch\nraise FileNotFoundError('no such table: sales.csv')")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("no such table: sales.csv"), std::string::npos) << ended.err;
  expect_nothing_temporary();
}

// In the middle of a trial, where two programs run.
void OptimizeLive::expect_gone(const std::string& mark, int signal) {
  const std::string text = script(kWriter);
  {
    RidgeProcess process(
        user(),
        words({"--rerun", "--budget", std::to_string(kBudget)}, {python_, text, mark}),
        shell());
    // ridge, and a supervisor and a python of each.
    EXPECT_TRUE(comes_within(std::chrono::seconds(240), [&] {
      return processes_with(mark).size() >= 5;
    })) << process.err();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.code, signal == SIGKILL ? -SIGKILL : 128 + signal) << ended.err;
  }
  EXPECT_TRUE(comes_within(std::chrono::seconds(60), [&] { return processes_with(mark).empty(); }));
}

TEST_F(OptimizeLive, AnInterruptLeavesNothing) {
  expect_gone("ridge_interrupted_" + std::to_string(::getpid()), SIGINT);
  expect_nothing_temporary();
}

TEST_F(OptimizeLive, AKillLeavesNothingBehindTheNextStart) {
  expect_gone("ridge_killed_" + std::to_string(::getpid()), SIGKILL);
  optimize({"--rerun", "--budget", "30"}, {"/bin/true"});
  expect_nothing_temporary();
}

}  // namespace
}  // namespace ridge
