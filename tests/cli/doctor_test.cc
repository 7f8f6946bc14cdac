// `ridge doctor` from a file to what a user reads.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ridge/io/file.h"
#include "tests/cli/ridge_process.h"
#include "tests/cli/run_words.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run;

// A step of the program: it waits for data, launches one kernel, and waits for that.
struct Step {
  double loader_us, kernel_us;
};

class DoctorVerb : public ::testing::Test {
 protected:
  static void add(
      json& events, const char* category, const std::string& name, double at, double us) {
    const bool is_device = std::string_view(category) == "kernel";
    json event = {{"ph", "X"}, {"cat", category}, {"name", name}, {"ts", at}, {"dur", us}};
    event["pid"] = is_device ? 0 : 100;
    event["tid"] = is_device ? 7 : 100;
    event["args"] = json::object();
    if (is_device) event["args"] = {{"device", 0}, {"stream", 7}};
    events.push_back(event);
  }

  std::string write(const std::string& name, const Step& step, const std::string& kernel = "gemm") {
    json events = json::array();
    double at = 1000;
    const double launch_us = 10;
    for (int i = 0; i < 12; ++i) {
      const double whole = step.loader_us + launch_us + step.kernel_us;
      add(events, "user_annotation", "ProfilerStep#" + std::to_string(i), at, whole);
      if (step.loader_us > 0)
        add(events,
            "user_annotation",
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            at,
            step.loader_us);
      add(events, "cuda_runtime", "cudaLaunchKernel", at + step.loader_us, 5);
      events.back()["args"]["correlation"] = i + 1;
      add(events, "kernel", kernel, at + step.loader_us + launch_us, step.kernel_us);
      events.back()["args"]["correlation"] = i + 1;
      at += whole;
    }
    const std::string path = (folder_ / name).string();
    write_file_atomically(path, json({{"schemaVersion", 1}, {"traceEvents", events}}).dump());
    return path;
  }

  test::TempFolder folder_;
};

TEST_F(DoctorVerb, StarvedRunIsAFinding) {
  const std::string path = write("slow.json", {4000, 5990});
  const Outcome text = run({"doctor", path});
  EXPECT_EQ(text.code, 1) << text.err;
  EXPECT_EQ(text.err, "");
  EXPECT_TRUE(text.out.starts_with(path + ": first R01: input starved")) << text.out;
  EXPECT_NE(text.out.find("\n1. R01 "), std::string::npos) << text.out;
  const Outcome machine = run({"doctor", path, "--json"});
  EXPECT_EQ(machine.code, 1);
  const json report = json::parse(machine.out);
  EXPECT_EQ(report.at("schema"), "ridge.doctor/1");
  EXPECT_EQ(report.at("findings").at(0).at("rule"), "R01");
  EXPECT_NEAR(report.at("findings").at(0).at("cost_ms").get<double>(), 4, 0.2);
  EXPECT_NEAR(report.at("step_ms").at("median").get<double>(), 10, 1e-6);
}

TEST_F(DoctorVerb, HealthyRunIsFine) {
  const Outcome text = run({"doctor", write("good.json", {0, 9990})});
  EXPECT_EQ(text.code, 0) << text.out << text.err;
  EXPECT_NE(text.out.find("nothing here is worth fixing; ceiling 1.00x"), std::string::npos)
      << text.out;
}

TEST_F(DoctorVerb, PageIsWrittenAndInert) {
  const std::string path = write("slow.json", {4000, 5990}, "<script>alert(1)</script>\x1b[2J");
  const std::string page = (folder_ / "page.html").string();
  EXPECT_EQ(run({"doctor", path, "--html", page}).code, 1);
  const std::string html = read_file(page);
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>") || html.starts_with("<!doctype html>"));
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find('\x1b'), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;"), std::string::npos);
  EXPECT_LT(html.size(), size_t{2} << 20);
}

TEST_F(DoctorVerb, ComparesBeforeAndAfter) {
  const std::string slow = write("slow.json", {4000, 5990}), good = write("good.json", {0, 5990});
  const Outcome faster = run({"doctor", "--compare", slow, good});
  EXPECT_EQ(faster.code, 0) << faster.err;
  EXPECT_TRUE(faster.out.starts_with("1.67 times as fast")) << faster.out;
  EXPECT_NE(faster.out.find("gone  R01"), std::string::npos) << faster.out;
  const Outcome slower = run({"doctor", "--compare", good, slow, "--gate", "10", "--json"});
  EXPECT_EQ(slower.code, 1);
  EXPECT_EQ(json::parse(slower.out).at("regression"), true);
  const std::string page = (folder_ / "compared.html").string();
  EXPECT_EQ(run({"doctor", "--compare", slow, good, "--html", page}).out, faster.out);
  EXPECT_NE(read_file(page).find("1.67 times as fast"), std::string::npos);
  EXPECT_EQ(run({"doctor", "--compare", good, slow, "--gate", "90"}).code, 0);
}

TEST_F(DoctorVerb, RanksAreReadTogether) {
  const std::string first = write("0.json", {0, 9000}), second = write("1.json", {0, 9000});
  const Outcome text = run({"doctor", first, second});
  EXPECT_EQ(text.code, 0) << text.out << text.err;
  EXPECT_NE(text.out.find("communication ms"), std::string::npos) << text.out;
  EXPECT_EQ(json::parse(run({"doctor", first, second, "--json"}).out).at("ranks").size(), 2u);
}

// The error says what an option is for, rather than that it does nothing.
TEST_F(DoctorVerb, FormsDoNotMix) {
  const std::string path = write("a.json", {0, 5990});
  const auto says = [&](const std::vector<std::string>& words, const std::string& text) {
    const test::Ended ended = test::ridge(folder_.path(), words);
    EXPECT_EQ(ended.code, 2) << text;
    EXPECT_NE(ended.err.find(text), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out, "");
  };
  const std::vector<std::string> command = {"--", "/bin/echo", "it", "ran"};
  const auto with_command = [&](std::vector<std::string> words) {
    words.insert(words.end(), command.begin(), command.end());
    return words;
  };
  says(with_command({"doctor", path}), "stands before '--'");
  says(with_command({"doctor", "--pid", "1"}), "'--pid' stands before '--'");
  says(with_command({"doctor", "--compare", path, path}), "'--compare' stands before '--'");
  says({"doctor", path, "--output", "report"}, "--output is for a command");
  says({"doctor", "--pid", "1", "--output", "report"}, "--output is for a command");
  says({"doctor", path, "--json", "--all"}, "--json excludes --all");
  says({"doctor", "--compare", path, path, "--all"}, "--compare excludes --all");
  says({"doctor", path, "--stop"}, "--stop is for a command");
  says({"doctor", path, "--steps", "3"}, "--steps is for a program that runs");
  says({"doctor", path, "--trace", "kept"}, "--trace is for a program that runs");
  // Before the program begins, not half a minute later.
  for (const char* option : {"--output", "--html", "--trace"}) {
    says(with_command({"doctor", option, "no/such/file"}), "cannot write 'no/such/file'");
    says(with_command({"doctor", option, folder_.path().string()}), "it is a folder");
  }
}

TEST_F(DoctorVerb, MisuseIsTold) {
  EXPECT_EQ(run({"doctor"}).code, 2);
  EXPECT_EQ(run({"doctor", (folder_ / "none.json").string()}).code, 2);
  EXPECT_EQ(run({"doctor", "--compare", "one.json"}).code, 2);
  const std::string path = write("a.json", {0, 100});
  EXPECT_EQ(run({"doctor", path, "--gate", "3"}).code, 2);
  EXPECT_EQ(run({"doctor", path, "--html", (folder_ / "no" / "page.html").string()}).code, 2);
  std::ofstream(folder_ / "text.json") << "hello";
  EXPECT_EQ(run({"doctor", (folder_ / "text.json").string()}).code, 2);
}

}  // namespace
}  // namespace ridge
