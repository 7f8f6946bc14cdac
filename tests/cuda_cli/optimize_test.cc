// `ridge optimize --device cuda` as users run it, on a simulated GPU: its proposals, its refusals
// with their reasons, and its end when the device has no free memory, or is lost.
#include <filesystem>
#include <map>

#include "ridge/tune/engine/techniques.h"
#include "tests/cuda_cli/cuda_run.h"

namespace ridge {
namespace {

class CudaOptimize : public CudaRun {
 protected:
  void SetUp() override {
    if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  }
  CudaOptimize() {
    // A cache of its own, and products of the library.
    shell_ =
        kCublaslt + "export RIDGE_TUNE=true XDG_CACHE_HOME=" + (folder_ / ".cache").string() + ";";
    write_mlp("mlp.toml", "");
    write("gpt.toml",
          "[model]\nkind = 'gpt'\nvocab = 11\ncontext = 8\nlayers = 1\nheads = 2\nwidth = 8\n"
          "[data]\nkind = 'random'\ntokens = true\nshape = [8]\nclasses = 11\nsamples = 256\n"
          "[loader]\nworkers = 1\nprefetch = 8\n[train]\nbatch = 4\nsteps = 64\n"
          "[metrics]\nevery = 50\n");
  }
  void write_mlp(const std::string& name, const std::string& train) const {
    write(name,
          "[model]\nkind = 'mlp'\nhidden = [16]\noutputs = 3\n[data]\nkind = 'random'\n"
          "shape = [6]\nsamples = 4096\nclasses = 3\n[loader]\nworkers = 1\nprefetch = 8\n"
          "[metrics]\nevery = 50\n[train]\nbatch = 16\nsteps = 256\n" +
              train);
  }

  /// The object that `ridge optimize FILE --device cuda --json` prints.
  json optimize(const std::string& words, const std::string& environment = {}) const {
    return json::parse(fine("optimize --device cuda --json --out found " + words, environment).out);
  }
  /// The last trial of each technique.
  static std::map<std::string, json> trials(const json& found) {
    std::map<std::string, json> all;
    for (const json& trial : found.at("trials")) all[trial.at("technique")] = trial;
    return all;
  }

  /// Flags that set every key but `free`, which alone may then be tried.
  static std::string all_but(const std::string& free) {
    const std::map<std::string, std::string> rows = {{"train.precision", "f32"},
                                                     {"train.kernels", "same_bits"},
                                                     {"train.capture", "auto"},
                                                     {"loader.workers", "1"},
                                                     {"loader.prefetch", "8"},
                                                     {"loader.cache", "false"},
                                                     {"metrics.every", "50"}};
    std::string words;
    for (const auto& [key, value] : rows)
      if (key != free) words += fmt::format(" --set {}={}", key, value);
    return words;
  }
};

TEST_F(CudaOptimize, EachTechniqueIsProposedOrHasItsReason) {
  write_mlp("slow.toml", "capture = 'off'\nmicro = 2\nkernels = 'same_bits'\n");
  const json found = optimize("slow.toml --dry-run --budget 300", "export RIDGE_CUBLASLT=none;");
  const std::map<std::string, json> all = trials(found);
  for (const Technique& technique : ridge::techniques())
    EXPECT_TRUE(all.contains(std::string(technique.name))) << technique.name;
  for (const char* of_host : {"threads", "pinning", "isa"})
    EXPECT_EQ(all.at(of_host).at("reason"), "the device computes, not the host's threads");
  EXPECT_EQ(all.at("overlap").at("verdict"), "kept");
  EXPECT_EQ(all.at("capture").at("change"), "train.capture \"off\" -> auto");
  EXPECT_EQ(all.at("micro").at("change"), "train.micro 2 -> 1");
  for (const char* tried : {"capture", "micro", "bf16", "fp16", "kernels"})
    EXPECT_FALSE(all.at(tried).at("predicted").is_null()) << all.at(tried);
  for (const char* precision : {"bf16", "fp16"})
    EXPECT_EQ(all.at(precision).at("class"), "precision") << precision;
  // Without a library there are the device's approximations.
  EXPECT_EQ(all.at("kernels").at("class"), "reassociation");
  // The device's memory is what is planned and measured: little of either.
  const json& baseline = found.at("baseline");
  EXPECT_LT(baseline.at("planned_bytes"), 1 << 20);
  EXPECT_LT(baseline.at("measured_bytes"), 16 << 20);
  EXPECT_GE(found.at("parts").size(), 2u);
}

// An algorithm that is slow is left for one with other bits, which the guard passes; the GPU's
// energy is in the proof.
TEST_F(CudaOptimize, FasterKernelsAreKeptWhereTheGuardPassesThem) {
  const std::string gpu = "export FAKE_CUBLASLT_TILES=2 FAKE_CUBLASLT_SLOW=1 LD_LIBRARY_PATH=" +
                          std::filesystem::path(RIDGE_FAKE_NVML).parent_path().string() +
                          " FAKE_NVML_UUID=GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfe00"
                          " FAKE_NVML_MILLIJOULES=5000+20000;";
  write_mlp("exact.toml", "kernels = 'same_bits'\n");
  const json found = optimize("exact.toml --budget 300" + all_but("train.kernels"), gpu);
  const json kernels = trials(found).at("kernels");
  EXPECT_EQ(kernels.at("class"), "reassociation");
  EXPECT_EQ(kernels.at("verdict"), "kept") << kernels;
  EXPECT_NE(kernels.at("guard").get<std::string>(), "");
  EXPECT_THAT(found.at("recipe").get<std::string>(), has("kernels = \"fastest\""));
  EXPECT_THAT(found.at("energy").at("of").get<std::string>(), has("the GPU")) << found.at("energy");
  EXPECT_GT(found.at("result").at("joules_per_step"), 0.0);
  EXPECT_THAT(text_of(folder_ / "found/report.html"), has("</html>"));
  EXPECT_THAT(fine("inspect exact.toml --plan --device cuda --recipe found/recipe.toml", gpu).out,
              has("cublaslt_1_tile2"));
  // A trial in the ledger can be run again.
  fine(fmt::format("ledger replay found/ledger.jsonl {} --budget 20 --json",
                   kernels.at("number").get<int>()),
       gpu);
}

// It is right for the numbers by which the tuner checks it, and wrong for larger ones.
TEST_F(CudaOptimize, AKernelThatIsWrongIsRejectedByTheGuard) {
  write_mlp("exact.toml", "kernels = 'same_bits'\n");
  const json found =
      optimize("exact.toml --budget 300" + all_but("train.kernels"),
               "export FAKE_CUBLASLT_TILES=2 FAKE_CUBLASLT_SLOW=1 FAKE_CUBLASLT_WRONG=2 "
               "FAKE_CUBLASLT_WRONG_ABOVE=1;");
  const json kernels = trials(found).at("kernels");
  EXPECT_EQ(kernels.at("verdict"), "guard_failed") << kernels;
  EXPECT_EQ(found.at("recipe"), "");
}

TEST_F(CudaOptimize, AKernelThatIsWrongForAllIsNeverPicked) {
  const Ended plan =
      fine("inspect mlp.toml --plan --device cuda --set train.kernels=fastest",
           "export FAKE_CUBLASLT_TILES=2 FAKE_CUBLASLT_SLOW=1 FAKE_CUBLASLT_WRONG=2;");
  EXPECT_THAT(plan.out, has("cublaslt_1_tile2", "wrong: element "));
}

// Loops by the device's own exp are shown as what they are, and timed only where any bits will do.
TEST_F(CudaOptimize, ApproximationsAreTimedWhereAnyBitsMayBe) {
  const std::string plan = "inspect mlp.toml --plan --device cuda";
  EXPECT_THAT(fine(plan + " --set train.kernels=same_bits").out,
              has("printed_approx (other bits)"));
  EXPECT_THAT(fine(plan).out, testing::AllOf(has("printed_approx"), lacks("printed_approx (")));
}

// A variant whose GPU is lost fails; the others, in processes of their own, go on.
TEST_F(CudaOptimize, ALostDeviceIsAFailedTrial) {
  write_mlp("off.toml", "capture = 'off'\n");
  const json found = optimize("off.toml --budget 300" + all_but("train.capture"),
                              "export FAKE_CUDA_FAIL=cuGraphLaunch=719;");
  const json capture = trials(found).at("capture");
  EXPECT_EQ(capture.at("verdict"), "failed") << capture;
  EXPECT_THAT(capture.at("reason").get<std::string>(), has("cuGraphLaunch")) << capture;
}

TEST_F(CudaOptimize, WhatDoesNotFitNamesWhatDoes) {
  const std::string large =
      "--device cuda --steps 1 --set model.hidden=128 --set train.batch=2048 ";
  const std::string little = "export FAKE_CUDA_MIB=2 RIDGE_TUNE=false;";
  const std::string error = error_of("train mlp.toml " + large, little);
  const std::string fits = "train.micro = ";
  ASSERT_THAT(error, has("error: out of device memory: the plan needs ", fits));
  const int micro = std::stoi(error.substr(error.find(fits) + fits.size()));
  ASSERT_GT(micro, 1);
  fine(fmt::format("train mlp.toml {} --set train.micro={}", large, micro), little);
}

TEST_F(CudaOptimize, AGptIsTakenApart) {
  const json found = optimize("gpt.toml --dry-run --budget 300");
  EXPECT_FALSE(trials(found).at("bf16").at("predicted").is_null());
}

}  // namespace
}  // namespace ridge
