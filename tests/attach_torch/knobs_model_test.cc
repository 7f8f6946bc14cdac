// Knobs of models and optimizers in real programs: what they change, what they leave alone, and
// what they refuse (tests/attach/programs/knob_model.py).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "ridge/attach/shim.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

/// The output of a program, and the facts of its shim.
struct Ran {
  int code = -1;
  std::vector<double> losses;
  std::map<std::string, std::string> seen;  ///< "formats": "last"; of one name, the last line.
  std::string err;
  ProcessFacts facts;

  std::string operator[](const std::string& name) const {
    const auto it = seen.find(name);
    return it == seen.end() ? "not printed" : it->second;
  }
  KnobFacts knob(std::string_view key) const {
    for (const KnobFacts& knob : facts.knobs)
      if (knob.key == key) return knob;
    return {};
  }
  KnobOffer offer(std::string_view key) const {
    for (const KnobOffer& offer : facts.offers)
      if (offer.key == key) return offer;
    return {};
  }
};

/// The number of the first line of knob_model.py that holds `text`.
int line_with(std::string_view text) {
  std::ifstream file("tests/attach/programs/knob_model.py");
  int number = 1;
  for (std::string line; std::getline(file, line) && line.find(text) == std::string::npos;)
    ++number;
  return number;
}

/// Names of what is seen are words that no value begins with.
constexpr std::array kNames = {"formats",
                               "dtypes",
                               "fused",
                               "keys",
                               "contiguous",
                               "options",
                               "moments contiguous",
                               "pickled",
                               "ours",
                               "hash",
                               "weight",
                               "maker",
                               "trained",
                               "functions",
                               "random",
                               "engine",
                               "call"};

void read_lines(const fs::path& path, Ran& ran) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("loss ")) ran.losses.push_back(std::stod(line.substr(5)));
    if (!line.starts_with("seen ")) continue;
    for (const std::string name : kNames)
      if (line.compare(5, name.size() + 1, name + " ") == 0)
        ran.seen[name] = line.substr(std::min(line.size(), 6 + name.size()));
  }
}

class ModelKnobs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
  }

  Ran run(const std::string& path, const std::string& words, const ShimOptions& options) const {
    const ShimFolder shim(options);
    const test::TempFolder folder;
    std::string command = "cd '" + folder.path().string() + "' && exec env -u PYTHONPATH";
    for (const auto& [name, value] : shim.environment())
      command += fmt::format(" '{}={}'", name, value);
    if (has_package_)
      command += fmt::format(" 'RIDGE_PACKAGE={}'",
                             fs::absolute("tests/attach/programs/stand_in").string());
    command += fmt::format(
        " TORCHINDUCTOR_CACHE_DIR=inductor timeout -k 1 280 '{}' '{}' {} >.out 2>.err </dev/null",
        python_,
        fs::absolute(path).string(),
        words);
    const int status = std::system(command.c_str());
    Ran ran;
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    read_lines(folder / ".out", ran);
    std::ostringstream err;
    err << std::ifstream(folder / ".err").rdbuf();
    ran.err = err.str();
    for (const ProcessFacts& facts : shim.facts())
      if (facts.program == fs::path(path).filename()) ran.facts = facts;
    EXPECT_EQ(ran.code == 0, ran.err.find("Error") == std::string::npos) << ran.err;
    return ran;
  }
  Ran run(const std::string& mode, int steps, const ShimOptions& options) const {
    return run("tests/attach/programs/knob_model.py", fmt::format("{} {}", mode, steps), options);
  }
  Ran run(const std::string& mode, int steps, const std::string& recipe = "") const {
    return run(mode, steps, ShimOptions{.profiled_steps = 0, .recipe = recipe});
  }

  std::string python_ = test::peers_python();
  bool has_package_ = false;  ///< The program finds a stand-in for the package ridge-engine.
};

void expect_near(const Ran& one, const Ran& other, double tolerance) {
  ASSERT_EQ(one.losses.size(), other.losses.size());
  ASSERT_FALSE(one.losses.empty());
  for (size_t i = 0; i < one.losses.size(); ++i)
    EXPECT_NEAR(one.losses[i], other.losses[i], tolerance * (1 + std::abs(other.losses[i]))) << i;
}

/// A program with knobs saves the same files and draws the same numbers as one without.
void expect_same_files(const Ran& one, const Ran& other) {
  for (const char* name :
       {"keys", "contiguous", "moments contiguous", "options", "pickled", "ours", "random"})
    EXPECT_EQ(one[name], other[name]) << name;
}

constexpr const char* kKeys[] = {"model.channels_last", "model.autocast", "optimizer.fused"};
const std::string kChannels = R"({"model.channels_last":true})";
const std::string kMost =
    R"({"model.channels_last":true,"model.autocast":"bf16","optimizer.fused":true})";
const std::string kEngine = R"({"model.compile":"ridge","optimizer.compile":"ridge"})";
const std::string kFormats =
    R"({"model.channels_last":true,"optimizer.fused":true,"optimizer.foreach":true})";

TEST_F(ModelKnobs, ChannelsLastAndFusedChangeNoMoreThanRounding) {
  for (const std::string mode : {"cnn", "grey"}) {
    const Ran plain = run(mode, 24), knobs = run(mode, 24, kFormats);
    EXPECT_EQ(plain["formats"], "first");
    EXPECT_EQ(knobs["formats"], "last") << knobs.err;
    EXPECT_EQ(knobs["fused"], "True foreach None");
    EXPECT_EQ(plain["fused"], "None foreach None");
    EXPECT_EQ(knobs["weight"], "True True");
    EXPECT_EQ(knobs["contiguous"], "True");
    EXPECT_EQ(knobs["options"], "None None");
    EXPECT_EQ(knobs["call"], "True");
    expect_near(knobs, plain, 2e-5);
    expect_same_files(knobs, plain);
    EXPECT_NE(knobs["hash"], plain["hash"]);
    EXPECT_EQ(knobs.knob("model.channels_last").state, "applied");
    EXPECT_EQ(knobs.knob("model.channels_last")
                  .site.substr(knobs.knob("model.channels_last").site.rfind('/')),
              fmt::format("/knob_model.py:{}", line_with("lambda x, y: F.cross_entropy")));
    EXPECT_EQ(knobs.knob("optimizer.fused").text, "AdamW of 8 tensors is fused");
    EXPECT_EQ(knobs.knob("optimizer.foreach").state, "refused");
    EXPECT_TRUE(knobs.facts.notes.empty());
  }
}

TEST_F(ModelKnobs, DropoutOfPicturesWithChannelsLastDropsTheSameValues) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ran plain = run("dropper", 24), knobs = run("dropper", 24, kChannels);
  EXPECT_EQ(plain["formats"], "first");
  EXPECT_EQ(knobs["formats"], "last") << knobs.err;
  expect_near(knobs, plain, 2e-5);
  expect_same_files(knobs, plain);
}

TEST_F(ModelKnobs, AutocastIsWithinTheModelAlone) {
  const Ran plain = run("cnn", 12), knobs = run("cnn", 12, R"({"model.autocast":"bf16"})");
  EXPECT_EQ(plain["dtypes"], "torch.float32");
  EXPECT_EQ(knobs["dtypes"], "torch.bfloat16");
  EXPECT_NE(knobs.losses, plain.losses);
  expect_near(knobs, plain, 0.02);
  expect_same_files(knobs, plain);
}

TEST_F(ModelKnobs, ForeachAloneIsSet) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ran plain = run("cnn", 8), knobs = run("cnn", 8, R"({"optimizer.foreach":true})");
  EXPECT_EQ(knobs["fused"], "None foreach True");
  expect_near(knobs, plain, 1e-6);
  expect_same_files(knobs, plain);
}

TEST_F(ModelKnobs, CompiledDropoutDrawsTheSameNumbers) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ran plain = run("dropout", 6), knobs = run("dropout", 6, R"({"model.compile":"default"})");
  EXPECT_EQ(plain["functions"], "0");
  EXPECT_EQ(knobs["functions"], "3");  // of 8 rows, of any number, and for evaluation
  expect_near(knobs, plain, 1e-5);
  expect_same_files(knobs, plain);
  const KnobFacts knob = knobs.knob("model.compile");
  EXPECT_EQ(knob.state, "applied");
  EXPECT_EQ(knob.text, "Mlp: 3 functions compiled");
  EXPECT_GT(knob.seconds, 0.1);
}

TEST_F(ModelKnobs, ACompiledSequentialStaysOne) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  // Its forward() is torch's own, which the compiler leaves alone unless it is asked rightly.
  const Ran plain = run("sequential", 5);
  const Ran knobs = run("sequential", 5, R"({"model.compile":"default","model.autocast":"bf16"})");
  EXPECT_EQ(knobs["functions"], "1");
  expect_near(knobs, plain, 0.02);
  expect_same_files(knobs, plain);
}

TEST_F(ModelKnobs, TheEngineIsGivenTheModelAndTheOptimizer) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  has_package_ = true;
  const Ran plain = run("dropout", 6), knobs = run("dropout", 6, kEngine);
  expect_near(knobs, plain, 1e-5);
  expect_same_files(knobs, plain);
  EXPECT_EQ(knobs.knob("model.compile").state, "applied");
  EXPECT_EQ(knobs.knob("optimizer.compile").state, "applied");
  EXPECT_EQ(knobs.knob("optimizer.compile").text, "the step of SGD over 4 tensors is compiled");
  EXPECT_EQ(knobs.facts.steps, 6);
  const Ran model = run("dropout", 6, R"({"model.compile":"ridge"})");
  EXPECT_EQ(model["engine"], "{'same_random': True}") << model.err;
}

TEST_F(ModelKnobs, WhatTheEngineIsNotGiven) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ran none = run("dropout", 6, kEngine);
  for (const char* key : {"model.compile", "optimizer.compile"})
    EXPECT_EQ(none.knob(key).text.rfind("Ridge's package is not in ", 0), 0u)
        << none.knob(key).text;
  EXPECT_EQ(none.losses, run("dropout", 6).losses);
  has_package_ = true;
  const Ran varied = run("varied", 8, kEngine), plain = run("varied", 8);
  EXPECT_EQ(varied.knob("optimizer.compile").text, "the program changes a number of SGD");
  expect_near(varied, plain, 1e-5);
  EXPECT_EQ(run("cnn", 6, kEngine).knob("optimizer.compile").text,
            "a schedule changes the learning rate of AdamW");
  EXPECT_EQ(run("compiled", 4, kEngine).knob("model.compile").text,
            "the program compiles Mlp itself");
  const ShimOptions probing{.profiled_steps = 0, .probes = true};
  const Ran probed = run("dropout", 25, probing);
  EXPECT_EQ(probed.offer("model.compile").value, "ridge");
  EXPECT_EQ(probed.offer("optimizer.compile").value, "ridge");
  EXPECT_EQ(probed.offer("optimizer.compile").semantic_class, SemanticClass::kReassociation);
}

TEST_F(ModelKnobs, LayersOfInferenceMultiplyBytes) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string recipe = R"({"model.quantize":"int8"})";
  EXPECT_EQ(run("infer", 12, recipe).knob("model.quantize").text.rfind("Ridge's package is not", 0),
            0u);
  has_package_ = true;
  for (const std::string mode : {"infer", "inference_mode"}) {
    const Ran plain = run(mode, 12), knobs = run(mode, 12, recipe);
    const KnobFacts knob = knobs.knob("model.quantize");
    EXPECT_EQ(knob.state, "applied") << knob.text << knobs.err;
    EXPECT_EQ(knob.text,
              "Cnn: 1 layer multiplies bytes; in f32 stay one (its products have 27 terms), head "
              "(its products have 12 terms), with ranges of 4 calls");
    EXPECT_EQ(knobs["engine"], "None");
    EXPECT_EQ(std::vector(knobs.losses.begin(), knobs.losses.begin() + 4),
              std::vector(plain.losses.begin(), plain.losses.begin() + 4))
        << "ranges are taken from calls of the model as it is";
    EXPECT_NE(knobs.losses[8], plain.losses[8]);
    expect_near(knobs, plain, 0.05);
    EXPECT_EQ(knobs["hash"], plain["hash"]) << "it is trained afterwards";
    expect_same_files(knobs, plain);
  }
  EXPECT_EQ(run("cnn", 6, recipe).knob("model.quantize").text,
            "Cnn is called with gradients, which products of bytes have not");
}

TEST_F(ModelKnobs, AFrozenBackboneIsPartOfTheModel) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ran plain = run("frozen", 8), knobs = run("frozen", 8, kChannels);
  EXPECT_EQ(knobs["formats"], "last");
  EXPECT_EQ(plain["weight"], "True True");
  EXPECT_EQ(knobs["weight"], "False True");  // of a convolution, and of what is trained
  EXPECT_EQ(knobs.knob("model.channels_last").text,
            "the inputs of Cnn come with channels last, and 2 weights that nobody trains");
  expect_near(knobs, plain, 1e-5);
}

TEST_F(ModelKnobs, BothModelsOfAGanAreFound) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ran plain = run("gan", 12), knobs = run("gan", 12, kFormats);
  EXPECT_EQ(knobs["formats"], "last");
  EXPECT_EQ(knobs["maker"], "last");
  EXPECT_EQ(plain["maker"], "first");
  EXPECT_EQ(knobs.knob("model.channels_last").text,
            "the inputs of Sequential, Cnn come with channels last");
  EXPECT_EQ(knobs.knob("optimizer.fused").text,
            "Adam of 8 tensors is fused; Adam of 4 tensors is fused");
  expect_near(knobs, plain, 1e-4);
}

TEST_F(ModelKnobs, WhereNoModuleHasAllNothingIsChanged) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const auto& [mode, reason] : std::map<std::string, std::string>{
           {"parts", "called one by one (Linear)"},
           {"forward", "called one by one (Conv2d, BatchNorm2d, Linear)"},
           {"functions", "no module is called"}}) {
    const Ran plain = run(mode, 60),
              knobs = run(mode, 60, R"({"model.channels_last":true,"model.autocast":"bf16"})");
    EXPECT_EQ(knobs.losses, plain.losses) << mode;
    EXPECT_EQ(knobs["call"], "True") << mode;
    for (const char* key : {"model.channels_last", "model.autocast"}) {
      EXPECT_EQ(knobs.knob(key).state, "refused") << mode;
      EXPECT_NE(knobs.knob(key).text.find(reason), std::string::npos) << knobs.knob(key).text;
    }
  }
}

TEST_F(ModelKnobs, TheModelOfATaskThatIsNeverCalled) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ran knobs = run("task", 5, kMost);
  EXPECT_EQ(knobs["formats"], "last");
  for (const char* key : kKeys) EXPECT_EQ(knobs.knob(key).state, "applied") << key;
}

TEST_F(ModelKnobs, WhatBreaksReachesTheProgram) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  EXPECT_EQ(run("view", 3).code, 0);
  const Ran knobs = run("view", 3, kChannels);
  EXPECT_EQ(knobs.code, 1);
  EXPECT_NE(knobs.err.find("RuntimeError: view size is not compatible"), std::string::npos);
  EXPECT_EQ(knobs.knob("model.channels_last").state, "applied");
}

TEST_F(ModelKnobs, WhatTheProgramDoesItselfIsLeftToIt) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ran amp = run("amp", 4, R"({"model.autocast":"bf16"})");
  EXPECT_EQ(amp.knob("model.autocast").text, "the program uses autocast itself");
  EXPECT_EQ(amp.losses, run("amp", 4).losses);
  const Ran compiled = run("compiled", 4, R"({"model.compile":"default"})");
  EXPECT_EQ(compiled.knob("model.compile").text, "the program compiles Mlp itself");
  const Ran optimizers =
      run("optimizers", 2, R"({"optimizer.fused":true,"optimizer.foreach":true})");
  EXPECT_EQ(optimizers["options"], "None None");
  EXPECT_EQ(optimizers.knob("optimizer.fused").text,
            "the program sets fused or foreach of SGD itself");
  EXPECT_EQ(optimizers.knob("optimizer.foreach").state, "refused");
}

TEST_F(ModelKnobs, InferenceAndATrainingBehindIt) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const std::string mode : {"infer", "inference_mode"}) {
    const Ran plain = run(mode, 24), knobs = run(mode, 24, kFormats);
    EXPECT_EQ(knobs["formats"], "first last");  // two calls tell that there is a third
    EXPECT_EQ(knobs["weight"], "False False");
    EXPECT_EQ(plain["weight"], "True False");
    EXPECT_EQ(knobs["trained"], "True");
    expect_near(knobs, plain, 1e-4);
    expect_same_files(knobs, plain);
  }
}

TEST_F(ModelKnobs, ACheckpointWithoutKnobsGoesOnWithThem) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ran plain = run("resume", 10), knobs = run("resume", 10, kFormats);
  EXPECT_EQ(knobs["fused"], "True foreach None");
  EXPECT_EQ(knobs["options"], "None None");
  expect_near(knobs, plain, 1e-4);
  expect_same_files(knobs, plain);
}

TEST_F(ModelKnobs, ModelsOfFrameworks) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const ShimOptions options{.profiled_steps = 0,
                            .recipe = R"({"model.autocast":"bf16","optimizer.fused":true})"};
  const std::map<std::string, std::string> models = {{"train_lightning.py", "Sequential"},
                                                     {"train_hf_trainer.py", "GPT2LMHeadModel"},
                                                     {"train_accelerate.py", "Classifier"}};
  for (const auto& [program, model] : models) {
    const Ran ran = run("examples/pytorch/" + program, "--steps 15", options);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.knob("model.autocast").text, model + ": products in bf16, results in f32");
    const bool sets_it = program == "train_hf_trainer.py";
    EXPECT_EQ(ran.knob("optimizer.fused").state, sets_it ? "refused" : "applied") << program;
    EXPECT_EQ(ran.facts.steps, 15) << program;
  }
}

TEST_F(ModelKnobs, OffersAndTheirReasons) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const ShimOptions probing{.profiled_steps = 0, .probes = true};
  const Ran cnn = run("cnn", 25, probing);
  ASSERT_TRUE(cnn.facts.is_probed);
  EXPECT_EQ(cnn.offer("model.channels_last").value, "true");
  EXPECT_EQ(cnn.offer("model.channels_last").semantic_class, SemanticClass::kReassociation);
  EXPECT_EQ(cnn.offer("model.channels_last").text, "2 convolutions in Cnn, in NCHW");
  EXPECT_EQ(cnn.offer("optimizer.fused").value, "true");
  EXPECT_EQ(cnn.offer("optimizer.foreach").refusal, "optimizer.fused does more of the same");
  const KnobOffer autocast = cnn.offer("model.autocast");
  EXPECT_NE(autocast.value.empty(), autocast.refusal.empty());
  const KnobOffer compile = cnn.offer("model.compile");
  EXPECT_TRUE(compile.value == "default" || compile.refusal.starts_with("torch.compile needs"));
  EXPECT_EQ(cnn.losses, run("cnn", 25).losses);

  const Ran slow = run("slow_infer", 16, probing);
  ASSERT_TRUE(slow.facts.is_probed);
  EXPECT_EQ(slow.facts.step_source, "module");
  EXPECT_EQ(slow.offer("model.compile").value, compile.value);

  const Ran amp = run("amp", 25, probing);
  EXPECT_EQ(amp.offer("model.autocast").refusal, "the program uses autocast itself");
  const Ran mlp = run("optimizers", 25, probing);
  EXPECT_EQ(mlp.offer("model.channels_last").refusal, "Mlp has no convolutions of pictures");
  EXPECT_NE(mlp.offer("optimizer.fused").refusal, "");
}

}  // namespace
}  // namespace ridge::attach
