// Records of the first steps of real programs.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ridge/attach/run_record.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

const ShimOptions kRecording{.profiled_steps = 0, .record_steps = 12};

class Recorded : public testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
  }

  /// `words` behind the interpreter's name, in an empty folder.
  std::optional<RunRecord> run(const std::string& words, int64_t reseed = 0) {
    ShimOptions options = kRecording;
    options.reseed = reseed;
    folder_.emplace(options);
    const test::TempFolder place;
    std::string command = "cd '" + place.path().string() +
                          "' && exec env PYTHONWARNINGS=error::UserWarning OMP_NUM_THREADS=1";
    for (const auto& [name, value] : folder_->environment())
      command += " '" + name + "=" + value + "'";
    command += " timeout -k 1 280 '" + python_ + "' " + words + " >.out 2>.err </dev/null";
    const int status = std::system(command.c_str());
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    err_ = text_of(place / ".err");
    out_ = text_of(place / ".out");
    return read_record(*folder_);
  }
  RunRecord record(const std::string& words, int64_t reseed = 0) {
    const std::optional<RunRecord> found = run(words, reseed);
    EXPECT_EQ(code_, 0) << err_;
    EXPECT_TRUE(found.has_value()) << words;
    return found.value_or(RunRecord{});
  }
  RunRecord of_script(const std::string& text, int64_t reseed = 0) {
    const test::TempFolder folder;
    std::ofstream(folder / "script.py") << text;
    return record("'" + (folder / "script.py").string() + "'", reseed);
  }
  static std::string program(const std::string& name) {
    return "'" + fs::absolute("tests/attach/programs/" + name).string() + "'";
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> notes() const {
    const std::vector<ProcessFacts> all = folder_->facts();
    return all.empty() ? std::vector<std::string>{} : all[0].notes;
  }

  std::string python_ = test::peers_python(), out_, err_;
  std::optional<ShimFolder> folder_;
  int code_ = -1;
};

TEST_F(Recorded, TwoRunsAreOneAndReseededOnesAreOthers) {
  const RunRecord first = record(program("shim_train.py") + " plain 20");
  EXPECT_EQ(first.source, "optimizer");
  EXPECT_EQ(first.steps, 12);
  EXPECT_TRUE(first.is_whole);
  EXPECT_FALSE(first.is_coarse);
  EXPECT_EQ(first.losses.size(), 12u);
  EXPECT_EQ(first.gradient_norms.size(), 12u);
  EXPECT_TRUE(first.output_counts.empty());
  EXPECT_EQ(first.parameters_hash.size(), 32u);
  EXPECT_TRUE(first.trouble.empty()) << first.trouble.front();
  EXPECT_TRUE(notes().empty()) << notes().front();
  const std::string learnt = out_;
  const RunRecord again = record(program("shim_train.py") + " plain 20");
  EXPECT_EQ(out_, learnt);
  EXPECT_EQ(again.losses, first.losses);
  EXPECT_EQ(again.gradient_norms, first.gradient_norms);
  EXPECT_EQ(again.parameters_hash, first.parameters_hash);
  const RunRecord other = record(program("shim_train.py") + " plain 20", 1);
  EXPECT_NE(other.losses, first.losses);
  EXPECT_NE(other.parameters_hash, first.parameters_hash);
  EXPECT_EQ(record(program("shim_train.py") + " plain 20", 1).losses, other.losses);
}

// Against torch itself, by a loop that takes the same numbers from within.
TEST_F(Recorded, NumbersAreThoseOfTheProgram) {
  const RunRecord found = of_script(R"(
import torch
torch.manual_seed(2)
net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 1))
dead = torch.nn.Parameter(torch.ones(3))
table = torch.nn.Embedding(10, 6, sparse=True)
optimizer = torch.optim.SGD([{"params": net.parameters()}, {"params": [dead], "lr": 1.0},
                             {"params": table.parameters()}], lr=0.01)
for step in range(12):
    optimizer.zero_grad()
    losses = []
    for part in range(3):
        loss = net(table(torch.tensor([1, 2, 2, step % 10]))).square().mean()
        loss.backward() if part else torch.autograd.backward([loss])
        losses.append(loss.item())
    squares = sum(p.grad.double().square().sum().item() for p in net.parameters())
    squares += table.weight.grad.to_dense().double().square().sum().item()
    print(sum(losses) / 3, squares ** 0.5)
    optimizer.step()
)");
  std::istringstream expected(out_);
  ASSERT_EQ(found.losses.size(), 12u);
  for (size_t step = 0; step < 12; ++step) {
    double loss = 0, norm = 0;
    expected >> loss >> norm;
    EXPECT_NEAR(found.losses[step], loss, 1e-9 * loss);
    EXPECT_NEAR(found.gradient_norms[step], norm, 1e-9 * norm);
  }
}

TEST_F(Recorded, RoundsOfOptimizersAndClosuresAreSteps) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  RunRecord found = record(program("shim_train.py") + " gan 20");
  EXPECT_EQ(found.steps, 12);
  EXPECT_TRUE(found.is_whole);
  found = of_script(R"(
import torch
torch.manual_seed(2)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def closure():
    optimizer.zero_grad()
    loss = net(torch.ones(2, 3)).square().sum()
    loss.backward()
    return loss
for step in range(12):
    optimizer.step(closure)
)");
  EXPECT_EQ(found.losses.size(), 12u);
  EXPECT_EQ(found.gradient_norms.size(), 12u);
  EXPECT_GT(found.gradient_norms[0], 0);
}

// Clipped gradients would all have the same norm.
TEST_F(Recorded, NormsAreThoseBeforeClipping) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const RunRecord found = of_script(R"(
import torch
from torch.nn.utils import clip_grad_norm_
torch.manual_seed(2)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    net(torch.randn(4, 3)).square().sum().backward()
    print(clip_grad_norm_(net.parameters(), 0.01).item())
    optimizer.step()
)");
  std::istringstream expected(out_);
  ASSERT_EQ(found.gradient_norms.size(), 12u);
  for (const double norm : found.gradient_norms) {
    double told = 0;
    expected >> told;
    EXPECT_NEAR(norm, told, 1e-6 * told);
    EXPECT_GT(norm, 0.02);
  }
}

TEST_F(Recorded, AnEarlyEndIsNotWhole) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  std::optional<RunRecord> found = run(program("shim_train.py") + " plain 5");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, 5);
  EXPECT_FALSE(found->is_whole);
  EXPECT_FALSE(found->parameters_hash.empty());
  found = run("-c 'import torch'");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, 0);
  EXPECT_EQ(found->trouble, std::vector<std::string>{"no step was seen"});
  EXPECT_FALSE(run("-c 'import json'"));
}

TEST_F(Recorded, BrokenLossesAndMissingOnesAreKept) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const RunRecord found = of_script(R"(
import torch
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
for step in range(12):
    loss = net(torch.ones(2, 3)).sum() * (float("inf") if step == 4 else 1.0)
    if step == 7:
        for p in net.parameters():
            p.grad = torch.ones_like(p)
    else:
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()
)");
  ASSERT_EQ(found.losses.size(), 12u);
  EXPECT_FALSE(std::isfinite(found.losses[4]));
  EXPECT_TRUE(std::isnan(found.losses[7]));
  EXPECT_NEAR(found.gradient_norms[7], 2, 1e-6);
  EXPECT_EQ(found.trouble, std::vector<std::string>{"1 of 12 steps had no .backward() on a loss"});
}

TEST_F(Recorded, OutputsWhereModulesAreOnlyCalled) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string words = program("guard_healthy.py") + " infer 40";
  const RunRecord first = record(words), again = record(words);
  EXPECT_EQ(first.source, "module");
  EXPECT_EQ(first.steps, 12);
  EXPECT_TRUE(first.is_whole);
  EXPECT_EQ(first.output_counts, std::vector<double>(12, 32));
  EXPECT_TRUE(first.losses.empty());
  EXPECT_EQ(first.outputs_hash.size(), 32u);
  EXPECT_EQ(first.outputs_hash, again.outputs_hash);
  EXPECT_EQ(first.output_projections, again.output_projections);
  EXPECT_NE(record(words, 1).outputs_hash, first.outputs_hash);
}

// From the first parameter on numbers are others, before it they are the program's; its own
// generators always are.
TEST_F(Recorded, ReseededProgramsKeepTheirData) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string script = R"(
import random
import numpy as np
import torch
torch.manual_seed(4)
np.random.seed(4)
random.seed(4)
print(torch.rand(1).item(), np.random.rand(), random.random())
own = np.random.default_rng(4), torch.Generator().manual_seed(4)
net = torch.nn.Linear(3, 1)
print(own[0].random(), torch.rand(1, generator=own[1]).item())
print(net.weight[0, 0].item(), torch.rand(1).item(), np.random.rand(), random.random())
torch.manual_seed(5)
np.random.seed(5)
random.seed(5)
print(torch.rand(1).item(), np.random.rand(), random.random())
)";
  const auto words_of = [&](int64_t reseed) {
    of_script(script, reseed);
    std::istringstream text(out_);
    return std::vector<std::string>(std::istream_iterator<std::string>(text), {});
  };
  const std::vector<std::string> plain = words_of(0), other = words_of(2);
  ASSERT_EQ(plain.size(), 12u);
  ASSERT_EQ(other.size(), 12u);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(plain[i] == other[i], i < 5) << i;
  EXPECT_TRUE(notes().empty());
}

TEST_F(Recorded, AProgramWithoutASeedIsGivenOne) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string words = program("guard_unseeded.py") + " global 15";
  const RunRecord first = record(words);
  EXPECT_EQ(notes(),
            std::vector<std::string>{"the program sets no seed: it was given one, to compare its "
                                     "runs"});
  EXPECT_EQ(record(words).parameters_hash, first.parameters_hash);
  EXPECT_NE(record(words, 1).parameters_hash, first.parameters_hash);
}

// The hash is of values in the order of their indices, whatever lies how in memory.
TEST_F(Recorded, LayoutsHaveTheSameHash) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const ShimFolder shim(kRecording);
  const test::TempFolder folder;
  std::ofstream(folder / "script.py") << R"(
import sys
sys.path.insert(0, sys.argv[1])
import torch
from ridge_record import Bits, Outputs, squares_of
def text(tensor):
    bits = Bits()
    bits.add(torch, tensor)
    return bits.text()
x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(1))
assert text(x) == text(x.to(memory_format=torch.channels_last))
assert text(x) == text(x.transpose(0, 1).contiguous().transpose(0, 1))
assert text(x) != text(x.reshape(4, 75)) and text(x) != text(x.double())
y = x.clone()
y.view(-1).view(torch.int32)[7] ^= 1
assert text(x) != text(y)
assert text(x.bfloat16()) == text(x.bfloat16().to(memory_format=torch.channels_last))
for odd in (torch.zeros(0, 3), torch.tensor(1.5), torch.tensor([True]), torch.randn(3) * 1j,
            (torch.randn(3) * 1j).conj(), torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(),
            torch.randn(3, requires_grad=True)):
    assert len(text(odd)) == 32
    assert abs(squares_of(torch, odd) - odd.detach().to_dense().cdouble().abs().square().sum()) < 1e-5
assert text(x) != text(torch.zeros(4, 3, 5, 5)) and squares_of(torch, torch.full((1,), 3.0)) == 9
outputs = Outputs(torch)
state = torch.get_rng_state()
outputs.add({"a": (x, [x.long()]), "b": torch.ones(70000), "c": None, "d": "e"})
assert torch.equal(state, torch.get_rng_state())
assert outputs.counts == [70300] and abs(outputs.sums[0] - x.double().sum() - 70000) < 1e-3
assert abs(outputs.projections[0]) < 70000 ** 0.5 * 6
print("fine")
)";
  const std::string command = "'" + python_ + "' -W ignore '" + (folder / "script.py").string() +
                              "' '" + shim.path() + "' >'" + (folder / "out").string() + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(text_of(folder / "out"), "fine\n");
}

// Dropout in train mode makes what the compiler has to leave as it is; a second model is called
// within a compiled function.
TEST_F(Recorded, CompiledProgramsAreRecordedToo) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const RunRecord found = of_script(R"(
import torch
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    compiled(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
print(dict(torch._dynamo.utils.counters["graph_break"]), torch._dynamo.utils.counters["stats"]["unique_graphs"])
)");
  EXPECT_EQ(out_, "{} 1\n");
  EXPECT_EQ(found.steps, 12);
  EXPECT_EQ(found.losses.size(), 12u);
}

}  // namespace
}  // namespace ridge::attach
