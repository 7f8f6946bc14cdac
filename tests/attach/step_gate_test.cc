// The gate: programs that step under the real shim, without torch (programs/gate_steps.py), and
// others that say anything.
#include "ridge/attach/step_gate.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "ridge/attach/shim.h"
#include "tests/attach/program_run.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

using Event = StepGate::Event;
using test::comes;
using test::TempFolder;
using test::text_of;

const ShimOptions kGate{.profiled_steps = 0, .gate = true};
constexpr double kStepSeconds = 0.001, kBatchSeconds = 0.005;

/// Such a program, in a folder of its own.
class Steps {
 public:
  explicit Steps(const std::string& words,
                 std::vector<std::pair<std::string, std::string>> environment = {})
      : shim_(kGate), gate_(shim_.path()) {
    ProgramRequest request = test::shell(
        "cd '" + folder_.path().string() + "' && exec python3 '" +
        std::filesystem::absolute("tests/attach/programs/gate_steps.py").string() + "' " + words);
    request.environment = shim_.environment();
    for (auto& entry : environment) request.environment.push_back(std::move(entry));
    program_.emplace(request);
  }

  Program& program() { return *program_; }
  StepGate& gate() { return gate_; }
  const TempFolder& folder() const { return folder_; }
  /// Returns the next event; none that comes is a failure of the test.
  Event next() {
    Event event = Event::kNothing;
    EXPECT_TRUE(comes([&] { return (event = gate_.wait(100)) != Event::kNothing; }));
    return event;
  }
  GateBlock run(int64_t steps, bool with_saves = false) {
    gate_.go(steps, with_saves);
    EXPECT_EQ(next(), Event::kBlock);
    return gate_.block();
  }
  int made() const { return std::atoi(text_of(folder_ / "steps").c_str()); }

 private:
  TempFolder folder_;
  ShimFolder shim_;
  StepGate gate_;
  std::optional<Program> program_;
};

class StepGateProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3 on PATH";
  }
};

// ---- a program that behaves ----

TEST_F(StepGateProgram, HoldsBehindTheFirstStepAndLetsGoForSoMany) {
  Steps steps("plain 1000");
  ASSERT_EQ(steps.next(), Event::kHeld);
  EXPECT_EQ(steps.gate().process(), steps.program().pid());
  EXPECT_EQ(steps.gate().source(), "optimizer");
  EXPECT_EQ(steps.gate().wait(50), Event::kNothing);
  EXPECT_EQ(steps.made(), 1);
  const GateBlock block = steps.run(20);
  EXPECT_EQ(steps.gate().wait(50), Event::kNothing);
  EXPECT_EQ(steps.made(), 21);
  EXPECT_EQ(block.steps, 20);
  EXPECT_GE(block.seconds, 20 * kStepSeconds);
  EXPECT_EQ(block.waited_seconds, 0);
  EXPECT_EQ(block.queue, 0);
  EXPECT_TRUE(block.breaks.empty());
  // The time for which it was held is in no block.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  double least = 1;
  for (int i = 0; i < 20; ++i) least = std::min(least, steps.run(1).seconds);
  EXPECT_GE(least, kStepSeconds);
  EXPECT_LT(least, 0.1);
}

TEST_F(StepGateProgram, TellsWhoseStepsTheyAre) {
  Steps steps("plain 1000", {{"SOURCE", "module"}});
  ASSERT_EQ(steps.next(), Event::kHeld);
  EXPECT_EQ(steps.gate().source(), "module");
  EXPECT_EQ(steps.run(5).source, "module");
}

TEST_F(StepGateProgram, WhatWasSavedOrIteratedAnewIsNoStep) {
  Steps steps("breaks 1000");
  ASSERT_EQ(steps.next(), Event::kHeld);
  const GateBlock block = steps.run(40);
  EXPECT_EQ(block.steps, 40);
  EXPECT_EQ(steps.made(), 1 + 40 + 4);
  ASSERT_EQ(block.breaks.size(), 4u);
  for (const GateBreak& one : block.breaks) {
    EXPECT_EQ(one.steps, 1);
    EXPECT_GE(one.seconds, 0.02 + kStepSeconds);
  }
  EXPECT_GE(block.seconds, 40 * kStepSeconds);
}

TEST_F(StepGateProgram, BlocksGoFromSaveToSaveWhereSavesAreTimed) {
  Steps steps("breaks 1000");
  ASSERT_EQ(steps.next(), Event::kHeld);
  EXPECT_EQ(steps.run(12, true).steps, 19);  // the steps 2 to 20
  const GateBlock block = steps.run(12, true);
  EXPECT_EQ(block.steps, 20);
  EXPECT_EQ(block.queue, 10);
  EXPECT_TRUE(block.breaks.empty());
  EXPECT_GE(block.seconds, 2 * 0.02 + 20 * kStepSeconds);
  EXPECT_EQ(steps.run(15).breaks.size(), 1u);
}

TEST_F(StepGateProgram, WhereAllStepsAreBreaksTheyAreSteps) {
  Steps steps("alone 1000");
  ASSERT_EQ(steps.next(), Event::kHeld);
  const GateBlock block = steps.run(10);
  EXPECT_EQ(block.steps, 10);
  EXPECT_TRUE(block.breaks.empty());
  EXPECT_EQ(steps.made(), 1 + 3 + 10);  // three until it is known
  EXPECT_EQ(steps.run(7).steps, 7);
}

// Batches take five milliseconds and steps one: a block that begins and ends with a full queue has
// made as many batches as it took.
TEST_F(StepGateProgram, WhatLiesReadyInALoaderGainsNothing) {
  Steps steps("loader 1000");
  ASSERT_EQ(steps.next(), Event::kHeld);
  steps.run(1);
  for (int i = 0; i < 3; ++i) {
    const GateBlock block = steps.run(6);
    EXPECT_EQ(block.steps, 6);
    EXPECT_GE(block.seconds, 6 * kBatchSeconds);
    EXPECT_EQ(block.queue, 4);
    EXPECT_TRUE(block.breaks.empty());
  }
}

// The last batches of an epoch come from the queue alone: with the first of the next one, of which
// the queue is filled anew, they are a break.
TEST_F(StepGateProgram, AnEpochsEndIsABreak) {
  Steps steps("epochs 1000");
  ASSERT_EQ(steps.next(), Event::kHeld);
  const GateBlock block = steps.run(45);
  EXPECT_EQ(block.steps, 45);
  ASSERT_EQ(block.breaks.size(), 2u);
  for (const GateBreak& one : block.breaks) {
    EXPECT_EQ(one.steps, 5);
    EXPECT_GE(one.seconds, 4 * kStepSeconds + 4 * kBatchSeconds);
  }
  EXPECT_EQ(steps.made(), 1 + 45 + 10);
}

TEST_F(StepGateProgram, EpochsShorterThanTheQueueAreTimedWhole) {
  Steps steps("rounds 1000");
  ASSERT_EQ(steps.next(), Event::kHeld);
  steps.run(1);
  const int before = steps.made();
  const GateBlock block = steps.run(4);
  EXPECT_EQ(block.steps, 6);
  EXPECT_EQ(steps.made() - before, 6);
  EXPECT_GE(block.seconds, 6 * kBatchSeconds);
  EXPECT_TRUE(block.breaks.empty());
}

// ---- several processes ----

TEST_F(StepGateProgram, TheFirstOfSeveralIsHeldAndTheOthersGoOn) {
  Steps steps("children 200");
  ASSERT_EQ(steps.next(), Event::kHeld);
  const auto made = [&](int child) {
    return std::atoi(text_of(steps.folder() / ("child" + std::to_string(child)) / "steps").c_str());
  };
  int ended = 0;
  EXPECT_TRUE(comes([&] {
    EXPECT_EQ(steps.gate().wait(10), Event::kNothing);
    ended = 0;
    for (int child = 0; child < 3; ++child) ended += made(child) == 200 ? 1 : 0;
    return ended == 2;
  }));
  EXPECT_EQ(made(0) + made(1) + made(2), 401);
  steps.gate().go(1000);
  EXPECT_EQ(steps.next(), Event::kGone);
  EXPECT_TRUE(steps.gate().trouble().empty());
  EXPECT_EQ(steps.gate().process(), 0);
  EXPECT_EQ(test::end_of(steps.program()).exit_code, 0);
}

TEST_F(StepGateProgram, OtherRanksAreNotHeld) {
  Steps steps("plain 20", {{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(test::end_of(steps.program()).exit_code, 0);
  EXPECT_EQ(steps.gate().wait(0), Event::kNothing);
}

TEST_F(StepGateProgram, WithoutRidgeTheProgramGoesOn) {
  auto steps = std::make_unique<Steps>("plain 100");
  ASSERT_EQ(steps->next(), Event::kHeld);
  {
    const StepGate closed = std::move(steps->gate());
  }
  EXPECT_EQ(test::end_of(steps->program()).exit_code, 0);
  EXPECT_EQ(steps->made(), 100);
}

// ---- what cannot be trusted ----

TEST(StepGate, ListensInAFolderWhosePathIsLong) {
  const TempFolder folder;
  const std::filesystem::path deep = folder / std::string(150, 'x');
  std::filesystem::create_directory(deep);
  StepGate gate(deep.string());
  EXPECT_TRUE(std::filesystem::is_socket(deep / "gate"));
  EXPECT_EQ(test::user_error([&] { StepGate second(deep.string()); }).find("cannot listen in '"),
            0u);
}

/// Somebody who says `packets`, one after the other.
Event answer_to(const std::vector<std::string>& packets, std::string& trouble) {
  const TempFolder folder;
  StepGate gate(folder.path().string());
  const Descriptor client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (folder / "gate").string();
  std::memcpy(address.sun_path, path.data(), path.size());
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            0);
  Event event = Event::kNothing;
  for (const std::string& packet : packets) {
    EXPECT_EQ(::send(client.get(), packet.data(), packet.size(), 0),
              static_cast<ssize_t>(packet.size()));
    EXPECT_TRUE(comes([&] { return (event = gate.wait(100)) != Event::kNothing; }));
  }
  trouble = gate.trouble();
  return event;
}

TEST(StepGate, WhatMakesNoSenseEndsTheConversation) {
  const std::string hello = R"({"hello":{"pid":5,"source":"module"}})";
  const auto block = [](const std::string& from, const std::string& to) {
    std::string text =
        R"({"block":{"steps":3,"seconds":0.5,"waited":0,"switches":1,"queue":0,"source":"module","breaks":[[1,2]]}})";
    if (const size_t at = text.find(from); at != std::string::npos)
      text.replace(at, from.size(), to);
    return text;
  };
  std::string trouble;
  EXPECT_EQ(answer_to({hello}, trouble), Event::kHeld);
  EXPECT_EQ(answer_to({hello, block("", "")}, trouble), Event::kBlock);
  const std::vector<std::vector<std::string>> broken = {
      {"{"},
      {"[]"},
      {"{}"},
      {block("", "")},
      {R"({"hello":{"pid":-1,"source":"module"}})"},
      {R"({"hello":{"pid":1.5,"source":"module"}})"},
      {R"({"hello":{"pid":5,"source":"magic"}})"},
      {R"({"hello":{"pid":99999999999,"source":"module"}})"},
      {std::string(20000, ' ')},
      {hello, hello},
      {hello, block("\"steps\":3", "\"steps\":0")},
      {hello, block("\"steps\":3", "\"steps\":-3")},
      {hello, block("0.5", "-0.5")},
      {hello, block("0.5", "1e300")},
      {hello, block("0.5", "NaN")},
      {hello, block("\"queue\":0", "\"queue\":\"0\"")},
      {hello, block("\"queue\":0,", "")},
      {hello, block("[[1,2]]", "[[1]]")},
      {hello, block("[[1,2]]", "[[1,0]]")},
      {hello, block("[[1,2]]", "7")},
  };
  for (const std::vector<std::string>& packets : broken) {
    EXPECT_EQ(answer_to(packets, trouble), Event::kGone) << packets.back();
    EXPECT_FALSE(trouble.empty()) << packets.back();
  }
}

// ---- a program that is stopped ----

TEST(ProgramHold, StopsAllOfATreeAndLetsItGoOn) {
  const TempFolder folder;
  const std::string pids = (folder / "pids").string();
  const std::string say = "echo $$ >> " + pids + "; exec sleep 1000";
  Program program(test::shell("sh -c '" + say + "' & setsid sh -c '" + say +
                              "' & (setsid sh -c '(sh -c \"" + "echo \\$\\$ >> " + pids +
                              "; exec sleep 1000\")& exit' &) ; echo $$ >> " + pids + "; wait"));
  const std::vector<pid_t> all = test::pids_in(pids, 4);
  const auto are = [&](bool stopped) {
    return std::ranges::all_of(
        all, [&](pid_t pid) { return test::stat_of(pid).starts_with("T") == stopped; });
  };
  EXPECT_TRUE(are(false));
  program.hold();
  EXPECT_TRUE(comes([&] { return are(true); }));
  program.hold();
  EXPECT_TRUE(are(true));
  program.go_on();
  EXPECT_TRUE(comes([&] { return are(false); }));
  // Processes that start others all the time.
  Program busy(test::shell("while :; do sh -c 'echo $$ > " + (folder / "busy").string() +
                           "; sleep 0.01' & sleep 0.001; done"));
  ASSERT_TRUE(comes([&] { return !text_of(folder / "busy").empty(); }));
  busy.hold();
  // A call of the system that has begun goes on to its end first.
  EXPECT_TRUE(comes([&] {
    const std::string before = text_of(folder / "busy");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return text_of(folder / "busy") == before;
  }));
}

TEST(ProgramHold, KillsWhatAProgramLeaves) {
  const TempFolder folder;
  const std::string pids = (folder / "pids").string();
  Program program(test::shell("setsid sh -c 'echo $$ >> " + pids + "; exec sleep 1000' & exit 0"));
  const test::Ending left(test::pids_in(pids, 1));
  EXPECT_EQ(test::end_of(program).exit_code, 0);
  EXPECT_FALSE(left.all_gone());
  program.kill_all();
  EXPECT_TRUE(comes([&] { return left.all_gone(); }));
}

}  // namespace
}  // namespace ridge::attach
