// The command line as a whole: verbs, options, exit codes.
#include "ridge/cli/command.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/cli/run_words.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::Outcome;
using test::run;

// First words of the indented lines below `heading` in a help text.
std::vector<std::string> listed(const std::string& help, const std::string& heading) {
  std::vector<std::string> names;
  std::istringstream text(help);
  bool inside = false;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("  ")) inside = line.starts_with(heading);
    std::smatch match;
    if (inside && std::regex_search(line, match, std::regex("^  (\\S+)")))
      names.push_back(match[1]);
  }
  return names;
}

// Scripts of users rely on these. A change here is a change for them: say so in the release.
const std::map<std::string, std::vector<std::string>> kOptions = {
    {"inspect",
     {"-h,--help", "--recipe", "--device", "--set", "--dim", "--json", "--nodes", "--plan"}},
    {"train",
     {"-h,--help",
      "--recipe",
      "--device",
      "--set",
      "--steps",
      "--seed",
      "--out",
      "--resume",
      "--init",
      "--trace",
      "--verify",
      "--json"}},
    {"eval", {"-h,--help", "--recipe", "--device", "--set", "--weights", "--json"}},
    {"predict",
     {"-h,--help",
      "--input",
      "--output",
      "--preprocess",
      "--classes",
      "--weights",
      "--device",
      "--set",
      "--batch",
      "--recipe",
      "--json"}},
    {"bench",
     {"-h,--help",
      "--batch",
      "--threads",
      "--dim",
      "--seconds",
      "--against",
      "--recipe",
      "--tune",
      "--python",
      "--weights",
      "--device",
      "--set",
      "--json"}},
    {"export",
     {"-h,--help",
      "--onnx",
      "--opset",
      "--dim",
      "--safetensors",
      "--names",
      "--weights",
      "--set",
      "--json"}},
    {"quantize",
     {"-h,--help",
      "--weights",
      "--data",
      "--method",
      "--ranges",
      "--equalize",
      "--correct-bias",
      "--no-correct-bias",
      "--max-drop",
      "--eval",
      "--gain",
      "--keep",
      "--dim",
      "-o,--output",
      "--json"}},
    {"generate",
     {"-h,--help",
      "--recipe",
      "--device",
      "--set",
      "--weights",
      "--prompt",
      "--tokens",
      "--temperature",
      "--top-k",
      "--seed",
      "--json"}},
    {"calibrate", {"-h,--help", "--device", "--threads", "--fresh", "--json"}},
    {"ledger", {"-h,--help"}},
    {"ledger show", {"-h,--help", "--json"}},
    {"ledger explain", {"-h,--help"}},
    {"ledger replay",
     {"-h,--help", "--budget", "--seed", "--json", "--sandbox", "--rerun", "--trust"}},
    {"ledger predictions", {"-h,--help", "--json"}},
    {"optimize",
     {"-h,--help",   "--data",           "--goal",    "--against", "--python", "--dim",
      "-o,--output", "--device",         "--set",     "--out",     "--budget", "--memory",
      "--sandbox",   "--rerun",          "--planned", "--confirm", "--only",   "--allow-trajectory",
      "--seed",      "--price-per-hour", "--dry-run", "--all",     "--json"}},
    {"recipe", {"-h,--help"}},
    {"recipe show", {"-h,--help", "--json", "--trust"}},
    {"recipe diff", {"-h,--help", "--trust"}},
    {"recipe patch", {"-h,--help", "--root", "--trust"}},
    {"run", {"-h,--help", "--recipe", "--quiet", "--trust"}},
    {"capture", {"-h,--help", "--out"}},
    {"doctor",
     {"-h,--help",
      "--compare",
      "--html",
      "--gate",
      "--json",
      "--all",
      "--pid",
      "--seconds",
      "--output",
      "--trace",
      "--steps",
      "--after",
      "--stop",
      "--stop-limit"}},
    {"watch",
     {"-h,--help",
      "--pid",
      "--interval",
      "--price-per-hour",
      "--json",
      "--output",
      "--prometheus",
      "--listen",
      "--quiet"}},
};

TEST(Command, OptionsAreFrozen) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_EQ(listed(help.out, "Options"), (std::vector<std::string>{"-h,--help", "--version"}));
  std::vector<std::string> verbs = listed(help.out, "Subcommands");
  for (size_t i = 0; i < verbs.size(); ++i) {  // grows while verbs have verbs of their own
    const std::string verb = verbs[i];
    std::istringstream words(verb + " --help");
    const Outcome verb_help =
        run({std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()});
    EXPECT_EQ(verb_help.code, 0) << verb;
    ASSERT_TRUE(kOptions.contains(verb)) << verb;
    EXPECT_EQ(listed(verb_help.out, "Options"), kOptions.at(verb)) << verb;
    for (const std::string& inner : listed(verb_help.out, "Subcommands"))
      verbs.push_back(verb + " " + inner);
  }
  EXPECT_EQ(verbs.size(), kOptions.size());
}

TEST(Command, VersionIsOneLine) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(std::regex_match(version.out, std::regex("ridge \\d+\\.\\d+\\.\\d+\n")));
}

TEST(Command, UnknownNamesGetTheNearest) {
  EXPECT_EQ(run({"calibrat"}).err, "error: unknown verb 'calibrat'; did you mean 'calibrate'?\n");
  EXPECT_EQ(run({"calibrate", "--fesh"}).err,
            "error: unknown option '--fesh' of 'calibrate'; did you mean '--fresh'?\n");
  EXPECT_EQ(run({"calibrate", "--qqqqqqqq"}).err,
            "error: unknown option '--qqqqqqqq' of 'calibrate'; 'ridge calibrate --help' lists "
            "them\n");
  EXPECT_EQ(run({"calibrate", "--fesh"}).code, 2);
  EXPECT_EQ(run({"ledger", "shwo"}).err, "error: unknown verb 'shwo'; did you mean 'show'?\n");
  EXPECT_EQ(run({"ledger"}).err, "error: no verb is given; 'ridge ledger --help' lists them\n");
  EXPECT_EQ(run({"ledger", "show", "f", "--jsno"}).err,
            "error: unknown option '--jsno' of 'ledger show'; did you mean '--json'?\n");
}

// From the file to weights, an evaluation of them, and a resumed run, through the front door.
TEST(Command, TrainEvalAndResume) {
  const test::TempFolder folder;
  const std::string config = folder / "run.toml", out = folder / "out";
  std::ofstream(config) << "[data]\nsamples = 64\n[model]\nhidden = [8]\n[train]\nbatch = 16\n";
  const auto train = [&](const std::string& steps, const std::string& resume) {
    return run({"train",
                config,
                "--steps",
                steps,
                "--set",
                "train.seed=3",
                "--out",
                out,
                "--resume",
                resume,
                "--json"});
  };
  const Outcome first = train("5", "no");
  ASSERT_EQ(first.code, 0) << first.err;
  const auto report = nlohmann::json::parse(first.out);
  EXPECT_EQ(report["schema"], "ridge.train/1");
  EXPECT_EQ(report["steps"], 5);
  EXPECT_NE(first.err.find("step 5/5"), first.err.npos);
  const Outcome eval =
      run({"eval", config, "--set", "train.out=" + out, "--set", "train.steps=1", "--json"});
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_EQ(nlohmann::json::parse(eval.out)["loss"], report["final"]["eval_loss"]);
  EXPECT_EQ(nlohmann::json::parse(train("9", "auto").out)["steps"], 9);
  std::vector<int64_t> steps;
  std::ifstream metrics(report["metrics"].get<std::string>());
  for (std::string line; std::getline(metrics, line);) {
    const auto parsed = nlohmann::json::parse(line);
    if (parsed.contains("loss")) steps.push_back(parsed["step"]);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const Outcome generate = run({"generate", config, "--set", "train.steps=1"});
  EXPECT_EQ(generate.code, 2);  // no language model
  EXPECT_EQ(generate.out, "");
}

}  // namespace
}  // namespace ridge
