// Workers that crash, hang, talk nonsense or refuse: each is one clear failure of a trial, and no
// process stays behind.
#include "ridge/tune/engine/worker.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/io/json.h"
#include "ridge/tune/target.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

constexpr const char* kFacts =
    R"({"facts":{"plan_hash":"ab","planned_bytes":1,"staging_bytes":0,"state_bytes":1,"batch":2,"micro":1,"queue":3,)"
    R"("steps_per_epoch":4,"epoch_samples":7,"mix":1,"fair_steps":1,"token_growth":1,"memory_text":"","recomputed":0,"open_seconds":0.5}})";
constexpr const char* kBlock =
    R"({"block":{"seconds":0.25,"waited_seconds":0.0,"stolen_seconds":0.0,"switches":7,)"
    R"("measured_bytes":99}})";

class Worker : public testing::Test {
 protected:
  Worker() { signal(SIGPIPE, SIG_IGN); }
  ~Worker() override { clear_stop(); }

  /// A program that acts as a worker: it opens, and then does what `script` says.
  std::string worker(const std::string& script) {
    const auto path = folder_ / "worker";
    std::ofstream(path) << "#!/bin/sh\nopened() { read line; echo '" << kFacts << "'; }\n"
                        << "ran() { read line; echo '" << kBlock << "'; }\n"
                        << script << "\n";
    chmod(path.c_str(), 0755);
    return path.string();
  }
  /// Patient: only a worker that is meant to hang is given up on.
  WorkerOptions options(const std::string& script, double answer_seconds = 60) {
    return {.program = worker(script), .answer_seconds = answer_seconds};
  }
  /// The text of the failure of a worker that opens and then fails in its first block.
  std::string failure(const std::string& script, double answer_seconds = 60) {
    try {
      WorkerProcess process(options(script, answer_seconds), "", 0);
      process.run(1);
    } catch (const VariantFailed& error) {
      return error.what();
    }
    return "it did not fail";
  }

  test::TempFolder folder_;
};

TEST_F(Worker, AnswersAreRead) {
  WorkerProcess process(options("opened; ran; read line; echo '{\"hash\":\"0a1b\"}'"), "", 0);
  EXPECT_EQ(process.facts().plan_hash, "ab");
  EXPECT_EQ(process.facts().queue, 3);
  const Block block = process.run(5);
  EXPECT_EQ(block.seconds, 0.25);
  EXPECT_EQ(block.switches, 7);
  EXPECT_EQ(process.measured_bytes(), 99);
  EXPECT_EQ(process.state_hash(), "0a1b");
}

// Batches that differ in length are asked for again; others lie ready, and stay.
TEST_F(Worker, RewindsWhereStepsDiffer) {
  const std::string script = "opened; read line; echo \"$line\" > " + (folder_ / "asked").string() +
                             "; echo '{}'; exec sleep 100";
  const auto asked = [&](const std::string& facts_before, const std::string& facts) {
    std::string program = script;
    WorkerOptions with = options(program);
    std::stringstream text;
    text << std::ifstream(with.program).rdbuf();
    std::string changed = text.str();
    const size_t at = changed.find(facts_before);
    changed.replace(at, facts_before.size(), facts);
    std::ofstream(with.program) << changed;
    WorkerProcess process(with, "", 0);
    process.rewind();
    std::stringstream line;
    line << std::ifstream(folder_ / "asked").rdbuf();
    return line.str();
  };
  EXPECT_EQ(asked("\"mix\":1", "\"mix\":1"), "");
  EXPECT_EQ(asked("\"mix\":1", "\"mix\":8"), "{\"rewind\":true}\n");
}

TEST_F(Worker, ATimelineIsRead) {
  WorkerProcess process(
      options("opened; read line; echo '{\"timeline\":{\"step_ms\":2.5,\"merged\":3,\"launches\":"
              "[{\"name\":\"matmul\",\"row\":\"step\",\"start_ms\":0.5,\"duration_ms\":1.5,"
              "\"site\":\"head:matmul\"}]}}'"),
      "",
      0);
  const StepTimeline timeline = process.timeline(3);
  EXPECT_EQ(timeline.step_ms, 2.5);
  EXPECT_EQ(timeline.merged, 3);
  ASSERT_EQ(timeline.launches.size(), 1u);
  EXPECT_EQ(timeline.launches[0].name, "matmul");
  EXPECT_EQ(timeline.launches[0].row, "step");
  EXPECT_EQ(timeline.launches[0].site, "head:matmul");
  EXPECT_EQ(timeline.launches[0].start_ms, 0.5);
  EXPECT_EQ(timeline.launches[0].duration_ms, 1.5);
}

TEST_F(Worker, FailuresAreToldInWords) {
  EXPECT_EQ(failure("opened; exit 3"), "it ended with exit code 3");
  EXPECT_EQ(failure("opened; kill -SEGV $$"), "it was ended by signal 11 (Segmentation fault)");
  EXPECT_EQ(failure("opened; kill -KILL $$"),
            "it was ended by signal 9 (Killed): the system may be out of memory");
  EXPECT_EQ(failure("opened; exec sleep 100", 3), "no answer within 3 s");
  EXPECT_EQ(failure("opened; read line; echo '{\"error\":\"out of memory\"}'; exec sleep 100"),
            "out of memory");
  EXPECT_EQ(failure("exit 1"), "it ended with exit code 1");
}

TEST_F(Worker, NonsenseIsAnError) {
  WorkerProcess process(options("opened; read line; echo '{]'; exec sleep 100"), "", 0);
  EXPECT_THROW(process.run(1), UserError);
  WorkerProcess other(options("opened; read line; echo '{\"block\":{}}'; exec sleep 100"), "", 0);
  EXPECT_THROW(other.run(1), UserError);
}

TEST_F(Worker, WhatCannotBeStartedIsAUserError) {
  EXPECT_THROW(WorkerProcess({.program = (folder_ / "none").string()}, "", 0), UserError);
}

TEST_F(Worker, NoProcessStaysBehind) {
  int id = 0;
  {
    WorkerProcess process(options("opened; exec sleep 100"), "", 0);
    id = process.process_id();
    EXPECT_EQ(kill(id, 0), 0);
  }
  EXPECT_EQ(kill(id, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(Worker, AWishToStopAndADeadlineEndTheWait) {
  WorkerOptions slow = options("opened; exec sleep 100");
  slow.answer_seconds = 100;
  WorkerProcess process(slow, "", 0);
  request_stop(SIGINT);
  EXPECT_THROW(process.run(1), TrialStopped);
  clear_stop();
  slow.deadline_ns = now_ns() + 300'000'000;
  const auto run_late = [&] { WorkerProcess(slow, "", 0).run(1); };
  EXPECT_THROW(run_late(), TrialStopped);
}

/// The answers of serve_variant() to these lines, one by one.
std::vector<std::string> answers(const std::string& requests) {
  std::istringstream in(requests);
  std::ostringstream out;
  serve_variant(in, out);
  std::vector<std::string> lines;
  std::istringstream text(out.str());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(ServeVariant, RefusesWhatMakesNoSense) {
  const auto lines = answers(
      "nonsense\n{}\n{\"run\":1,\"kind\":\"train\"}\n{\"open\":\"[model]\\nkind = "
      "'none'\",\"epoch\":0}\n");
  ASSERT_EQ(lines.size(), 4u);
  for (const std::string& line : lines)
    EXPECT_NE(parse_json(line, "answer").find("error"), nullptr) << line;
  EXPECT_NE(lines[2].find("no variant is open"), std::string::npos);
}

TEST(ServeVariant, RunsEveryKindOfStepAndHashesTheState) {
  const std::string config =
      "[model]\\nkind = 'mlp'\\nhidden = [8]\\noutputs = 3\\n[data]\\nkind = 'random'\\n"
      "shape = [4]\\nsamples = 64\\nclasses = 3\\n[train]\\nbatch = 16\\nsteps = 100\\n";
  const std::string open = "{\"open\":\"" + config + "\",\"epoch\":0}\n";
  const auto lines =
      answers(open +
              "{\"run\":2,\"kind\":\"train\"}\n{\"hash\":true}\n"
              "{\"run\":9,\"kind\":\"kept\"}\n{\"run\":3,\"kind\":\"load\"}\n"
              "{\"run\":3,\"kind\":\"no_kernel\"}\n{\"run\":3,\"kind\":\"other\"}\n"
              "{\"run\":9,\"kind\":\"report\"}\n{\"timeline\":2}\n{\"timeline\":0}\n");
  ASSERT_EQ(lines.size(), 10u);
  const JsonValue facts = parse_json(lines[0], "facts").at("facts", "facts");
  EXPECT_EQ(facts.at("batch", "").as_integer("batch"), 16);
  EXPECT_EQ(facts.at("steps_per_epoch", "").as_integer(""), 4);
  for (const size_t i : {1, 3, 4, 5, 7})
    EXPECT_GT(parse_json(lines[i], "b").at("block", "b").at("seconds", "b").as_number(""), 0.0);
  const std::string hash = parse_json(lines[2], "hash").at("hash", "").as_string("hash");
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_NE(lines[6].find("unknown kind"), std::string::npos);
  const JsonValue timeline = parse_json(lines[8], "t").at("timeline", "t");
  EXPECT_GT(timeline.at("launches", "t").as_array("t").size(), 3u);
  EXPECT_NE(lines[9].find("0 steps to trace"), std::string::npos);
  // Another variant has its own state: two steps from the same seed end with the same bits.
  const auto again = answers(open + "{\"run\":2,\"kind\":\"train\"}\n{\"hash\":true}\n");
  EXPECT_EQ(again[2], lines[2]);
  const auto longer = answers(open + "{\"run\":3,\"kind\":\"train\"}\n{\"hash\":true}\n");
  EXPECT_NE(longer[2], lines[2]);
}

}  // namespace
}  // namespace ridge
