// Whole runs with --device cuda, as users start them.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>

#include "tests/cuda_cli/cuda_run.h"

namespace ridge {
namespace {

class CudaTrain : public CudaRun {
 protected:
  CudaTrain() {
    shell_ = "export RIDGE_TUNE=false;";  // kernels are not timed
    write("mlp.toml",
          "[model]\nkind = 'mlp'\nhidden = [12]\noutputs = 3\ndropout = 0.25\n[data]\n"
          "kind = 'random'\nshape = [6]\nsamples = 80\nclasses = 3\neval_fraction = 0.2\n"
          "[optimizer]\nclip = 1.0\n[train]\nbatch = 16\nmicro = 2\nsteps = 6\n"
          "[metrics]\nevery = 1\n");
    write("gpt.toml",
          "[model]\nkind = 'gpt'\nvocab = 11\ncontext = 8\nlayers = 1\nheads = 2\nwidth = 8\n"
          "dropout = 0.1\n[data]\nkind = 'random'\ntokens = true\nshape = [8]\nclasses = 11\n"
          "samples = 32\n[train]\nbatch = 4\nsteps = 4\n[metrics]\nevery = 1\n");
    write("cnn.toml",
          "[model]\nkind = 'cnn'\nwidths = [4, 8]\nblocks = 1\noutputs = 4\n[data]\n"
          "kind = 'random'\nshape = [8, 8, 2]\nclasses = 4\nsamples = 32\n[train]\nbatch = 8\n"
          "steps = 3\n[metrics]\nevery = 1\n");
  }
  /// A run that has to succeed and to leave nothing on the device.
  Ended fine(const std::string& words, const std::string& environment = {}) const {
    const std::string log = (folder_ / "log").string();
    std::filesystem::remove(log);
    Ended ended = CudaRun::fine(words, environment + "export FAKE_CUDA_LOG=" + log + ";");
    EXPECT_EQ(wrongs(log), std::vector<std::string>{}) << words;
    return ended;
  }
  /// The JSON that such a run prints.
  json report_of(const std::string& words, const std::string& environment = {}) const {
    return json::parse(fine(words + " --json", environment).out);
  }
  /// Lines of the driver's log on objects that were left or misused.
  static std::vector<std::string> wrongs(const std::string& log) {
    std::vector<std::string> found;
    std::istringstream lines(text_of(log));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("FAULT") || line.starts_with("LEFT")) found.push_back(line);
    return found;
  }
  /// The kernels of a GPT or a CNN take minutes to compile; a perceptron has one of each family.
  static bool is_left_to_full(const std::string& model) {
    return model != "mlp" && !test::is_full_scale();
  }
  /// Numbers of the steps in the metrics of a run.
  std::vector<double> told(const std::string& out, const char* key) const {
    std::vector<double> all;
    std::istringstream lines(text_of(folder_ / (out + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (const json each = json::parse(line); each.contains("loss")) all.push_back(each[key]);
    return all;
  }
  std::vector<double> losses(const std::string& out) const { return told(out, "loss"); }
  /// Over a few steps; by default but for another order of sums of products.
  void expect_near(const std::string& run, const std::string& wanted, double bound = 2e-5) const {
    const std::vector<double> got = losses(run), want = losses(wanted);
    ASSERT_EQ(got.size(), want.size());
    ASSERT_FALSE(want.empty());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], bound * std::fabs(want[i])) << "step " << i + 1;
  }
};

TEST_F(CudaTrain, LossesAreThoseOfTheCpu) {
  for (const std::string model : {"mlp", "gpt", "cnn"}) {
    if (is_left_to_full(model)) continue;
    SCOPED_TRACE(model);
    fine("train " + model + ".toml --out cpu-" + model);
    fine("train " + model + ".toml --device cuda --out cuda-" + model);
    expect_near("cuda-" + model, "cpu-" + model);
  }
}

TEST_F(CudaTrain, ALossInPartsIsThatOfTheCpu) {
  // Minutes of compiling kernels; ChunkLoss has the pass, and loops and products their own tests.
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  fine("train gpt.toml --out cpu");
  fine("train gpt.toml --device cuda --set train.loss_chunks=3 --out cuda");
  expect_near("cuda", "cpu");
  EXPECT_THAT(fine("train gpt.toml --device cuda --set train.loss_chunks=3 --verify").err,
              has("the same bits"));
}

TEST_F(CudaTrain, TheSameBitsInAnyOrderOfWork) {
  std::string hash;
  for (const char* schedule : {"", "export FAKE_CUDA_RANDOM=1;", "export FAKE_CUDA_RANDOM=2;"}) {
    const std::string own = report_of("train mlp.toml --device cuda", schedule)["state_hash"];
    if (hash.empty()) hash = own;
    EXPECT_EQ(own, hash) << schedule;
  }
}

// Though a library is there, whose products come first by default.
TEST_F(CudaTrain, SameBitsAreThoseOfTheCpu) {
  const std::string words = "mlp.toml --device cuda --set train.kernels=";
  EXPECT_EQ(report_of("train " + words + "same_bits", kCublaslt)["state_hash"],
            report_of("train mlp.toml")["state_hash"]);
  EXPECT_THAT(fine("inspect " + words + "same_bits --plan", kCublaslt).out,
              testing::AllOf(lacks("bits may differ"), has(" launches have the CPU's bits\n")));
  const json plan = report_of("inspect " + words + "auto --plan", kCublaslt);
  size_t products = 0;
  for (const json& entry : plan["entries"])
    for (const json& kernel : entry["kernels"]) {
      const std::string pick = kernel["pick"];  // by time
      EXPECT_EQ(kernel["other_bits"], pick.starts_with("cublaslt_") || pick == "printed_approx")
          << kernel;
      for (const json& candidate : kernel["candidates"])
        products += candidate["name"].get<std::string>().starts_with("cublaslt_");
    }
  EXPECT_GT(products, 0u);
}

// The kernels of a resumed run are its checkpoint's, whatever comes first by then.
TEST_F(CudaTrain, AResumedRunKeepsItsKernelsOrNamesThem) {
  const std::string library = kCublaslt + "export FAKE_CUBLASLT_TILES=2;";
  fine("train mlp.toml --device cuda --steps 3 --out run", library);
  const Ended same = fine("train mlp.toml --device cuda --out run --resume auto --json", library);
  EXPECT_THAT(same.err, lacks("kernels are other"));
  EXPECT_EQ(json::parse(same.out)["kernels_changed"], json::array());
  const Ended without =
      fine("train mlp.toml --device cuda --out run --steps 8 --resume auto --json");
  EXPECT_THAT(without.err,
              has(" kernels are other than the checkpoint's, since they were picked on "
                  "'cuda; NVIDIA Fake 9000, sm_90"));
  const json changed = json::parse(without.out)["kernels_changed"];
  ASSERT_FALSE(changed.empty());
  EXPECT_THAT(changed[0]["was"].get<std::string>(), testing::StartsWith("cublaslt_")) << changed[0];
  EXPECT_EQ(changed[0]["is"], "printed");
}

// Losses are those of the plain way, the CPU's or printed kernels', but for roundings.
TEST_F(CudaTrain, WhatLibrariesComputeIsRight) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  struct Case {
    std::string config, shell;
    std::vector<std::string> kernels;  // in the plan
    std::string plain;
    double bound = 2e-5;
  };
  const Case cases[] = {
      {"gpt.toml", kCublaslt, {"cublaslt_"}, "gpt.toml"},
      {"gpt.toml", kCublaslt + "export FAKE_CUDA_RANDOM=3;", {"cublaslt_"}, "gpt.toml"},
      {"cnn.toml", kCudnn, {"cudnn_eng1"}, "cnn.toml"},
      {"cnn.toml", kCudnn + "export FAKE_CUDA_RANDOM=3;", {"cudnn_eng1"}, "cnn.toml"},
      {"gpt.toml --set train.precision=tf32", kCublaslt, {"cublaslt_tf32_"}, "gpt.toml", 0x1p-8},
      // Biases and GELU are its epilogues.
      {"gpt.toml --set train.precision=bf16",
       kCublaslt,
       {"cublaslt_bias_", "cublaslt_gelu_aux_bias_", "cublaslt_dgelu_"},
       "gpt.toml --device cuda --set train.precision=bf16",
       0x1p-8}};
  for (const auto& [config, shell, kernels, plain, bound] : cases) {
    SCOPED_TRACE(config + shell);
    const Ended plan = fine("inspect " + config + " --plan --device cuda", shell);
    for (const std::string& each : kernels) EXPECT_THAT(plan.out, has(each));
    for (const char* run : {"plain", "cuda"}) std::filesystem::remove_all(folder_ / run);
    fine("train " + plain + " --out plain");
    fine("train " + config + " --device cuda --out cuda", shell);
    expect_near("cuda", "plain", bound);
    if (config.ends_with("tf32")) {
      EXPECT_NE(losses("cuda"), losses("plain"));
    }
  }
}

// Two ways of the same 16 bits: the device rounds the results of products too. Other pairs are in
// tests/train/stored_16_bits_test.cc, as each compiles its own kernels here.
TEST_F(CudaTrain, SixteenBitsInMemory) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  struct Case {
    std::string model, precision;
    double roundoff;
  };
  for (const auto& [model, precision, roundoff] : {Case{"mlp", "fp16", 0x1p-11},
                                                   {"gpt", "bf16", 0x1p-8},
                                                   {"cnn", "bf16", 0x1p-8},
                                                   {"cnn", "fp16", 0x1p-11}}) {
    SCOPED_TRACE(model + " in " + precision);
    const std::string run = model + precision;
    const std::string words =
        fmt::format("train {}.toml --set train.precision={} --out ", model, precision);
    fine("train " + model + ".toml --out f32-" + run);
    fine(words + "cpu-" + run);
    fine(words + "cuda-" + run + " --device cuda");
    expect_near("cuda-" + run, "cpu-" + run, 4 * roundoff);
    EXPECT_GT(std::fabs(losses("cuda-" + run)[0] - losses("f32-" + run)[0]), 1e-6);
  }
  const std::string on_gpu = " --device cuda --set train.precision=bf16";
  EXPECT_THAT(fine("inspect gpt.toml --plan" + on_gpu).out, has("bf16["));
  // Convolutions are products, and norms are loops.
  EXPECT_THAT(fine("inspect cnn.toml --nodes" + on_gpu).out, lacks("= conv2d", "= batch_norm"));
}

// The gradient of the scaled loss overflows until the scale fits.
TEST_F(CudaTrain, OverflowsOfFp16SkipTheirSteps) {
  const std::string words =
      "train mlp.toml --steps 14 --set train.precision=fp16 --set train.loss_scale=16777216 --out ";
  fine(words + "cpu");
  fine(words + "cuda --device cuda");
  const std::vector<double> skipped = told("cuda", "skipped_steps"),
                            scale = told("cuda", "loss_scale");
  ASSERT_EQ(skipped.size(), 14u);
  EXPECT_EQ(skipped.front(), 1);
  EXPECT_GE(skipped.back(), 4);
  EXPECT_LT(skipped.back(), 12);
  for (size_t i = 0; i < skipped.size(); ++i)
    EXPECT_EQ(scale[i], std::ldexp(16777216.0, -static_cast<int>(skipped[i])));
  EXPECT_NEAR(skipped.back(), told("cpu", "skipped_steps").back(), 1);
}

TEST_F(CudaTrain, MemoryIsLimitedInSixteenBitsToo) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  write("deep.toml",
        "[model]\nkind = 'gpt'\nvocab = 32\ncontext = 64\nlayers = 4\nheads = 2\nwidth = 32\n"
        "[data]\nkind = 'random'\ntokens = true\nshape = [64]\nclasses = 32\nsamples = 64\n"
        "[train]\nbatch = 16\nsteps = 2\nprecision = 'bf16'\n[metrics]\nevery = 1\n");
  const auto planned = [&](const std::string& more) {
    const json report = report_of("inspect deep.toml --device cuda" + more);
    return report["memory"]["planned_bytes"].get<int64_t>();
  };
  const int64_t whole = planned("");
  const auto limit = [](int64_t mib) { return fmt::format(" --set train.memory_limit={}", mib); };
  const int64_t mib = whole * 3 / 4 >> 20;
  EXPECT_LE(planned(limit(mib)), mib << 20);
  // A little less is had by what keeps the bits; parts of a batch or of a loss would not.
  const int64_t little = (whole - 1) >> 20;
  EXPECT_THAT(fine("inspect deep.toml --device cuda" + limit(little)).out,
              has(fmt::format("memory limit {} MiB: recomputed results", little)));
  fine("train deep.toml --device cuda --out whole");
  fine("train deep.toml --device cuda --out less" + limit(little));
  EXPECT_EQ(losses("less"), losses("whole"));
}

TEST_F(CudaTrain, ThePlannedProgramIsThePlainOne) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  EXPECT_THAT(fine("train mlp.toml --device cuda --verify").err, has("verify: ", "the same bits"));
  fine("train mlp.toml --device cuda --verify --set train.precision=bf16");
}

// The device's memory in use grows by the plan, from just before the plan's memory is taken to the
// last step; CUDA graphs are counted apart. Libraries load each kernel when it first runs, which is
// before that.
TEST_F(CudaTrain, MemoryInUseIsThePlanAndTheCapturedLaunches) {
  const std::string libraries = kCublaslt + kCudnn;
  struct Case {
    std::string model;
    int steps;
    std::string environment;
  };
  for (const auto& [model, steps, environment] : {Case{"mlp", 50, ""},
                                                  Case{"mlp", 4, libraries},
                                                  Case{"gpt", 6, ""},
                                                  Case{"gpt", 4, libraries},
                                                  Case{"cnn", 4, libraries}}) {
    if (is_left_to_full(model)) continue;
    for (const char* capture : {"auto", "off"}) {
      SCOPED_TRACE(fmt::format("{} {} {}", model, capture, environment));
      const std::string words = fmt::format(
          "train {}.toml --device cuda --steps {} --set train.capture={}", model, steps, capture);
      const json report = report_of(words, environment), memory = report["memory"];
      EXPECT_EQ(report["steps"], steps);
      EXPECT_TRUE(report["capture_refusal"].is_null());
      const auto planned = memory["planned_bytes"].get<int64_t>();
      const auto captured = memory["captured_bytes"].get<int64_t>();
      EXPECT_EQ(captured > 0, std::string_view(capture) == "auto");
      EXPECT_EQ(memory["measured_bytes"].get<int64_t>(), planned + captured);
      EXPECT_LE(captured, std::max<int64_t>(planned / 100, 8 << 20));
    }
  }
}

TEST_F(CudaTrain, ACaptureThatIsRefusedIsToldOnce) {
  const std::string fails = "export FAKE_CUDA_FAIL=cuStreamEndCapture=901;";
  const Ended ended = fine("train mlp.toml --device cuda --json", fails);
  const std::string note = "launches are queued one by one, since device 'cuda' cannot capture";
  const size_t at = ended.err.find(note + " those of 'micro");
  EXPECT_NE(at, std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find(note, at + 1), std::string::npos) << ended.err;
  const json report = json::parse(ended.out);
  EXPECT_THAT(report["capture_refusal"].get<std::string>(), has("cuStreamEndCapture"));
  // Asked for, it is an error.
  EXPECT_THAT(error_of("train mlp.toml --device cuda --set train.capture=on", fails),
              has("set train.capture to auto"));
}

// A machine without it runs, and says once what it does without.
TEST_F(CudaTrain, ALibraryThatIsNotThereIsTold) {
  if (void* const library = ::dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL)) {
    ::dlclose(library);
    GTEST_SKIP() << "this machine has libcudnn.so.9";
  }
  const Ended ended =
      fine("train mlp.toml --device cuda --steps 1", "unset RIDGE_CUDNN VIRTUAL_ENV;");
  const std::string package = "nvidia-cudnn-cu13`";
  const size_t at =
      ended.err.find("as the library is not there: install it by `pip install " + package);
  EXPECT_NE(at, std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find(package, at + package.size() + 60), std::string::npos) << ended.err;
}

// Nothing runs beside one that is installed and cannot start, unless that is asked for.
TEST_F(CudaTrain, ALibraryOfProductsThatCannotStartIsRefused) {
  const std::filesystem::path library = RIDGE_FAKE_CUBLASLT;
  for (const std::string& found :
       {"unset RIDGE_CUBLASLT; export LD_LIBRARY_PATH=" + library.parent_path().string() + ";",
        "export RIDGE_CUBLASLT=" + library.string() + ";"})
    EXPECT_THAT(error_of("train mlp.toml --device cuda --steps 1", found),
                has("cuBLASLt 13.1.0: cublasLtCreate"));
  EXPECT_THAT(fine("train mlp.toml --device cuda --steps 1").err, lacks("cuBLASLt"));
  EXPECT_THAT(fine("calibrate --device cuda --fresh", "export FAKE_CUDA_MIB=64;").out,
              has("no cuBLASLt"));
}

TEST_F(CudaTrain, TheOtherVerbsRunToo) {
  fine("train mlp.toml --device cuda --out run");
  EXPECT_THAT(fine("inspect mlp.toml --plan --device cuda").out, has("printed"));
  EXPECT_NEAR(report_of("eval mlp.toml --weights run --device cuda")["loss"].get<double>(),
              report_of("eval mlp.toml --weights run")["loss"].get<double>(),
              1e-5);
  const json measured = report_of("calibrate --device cuda --fresh", "export FAKE_CUDA_MIB=64;");
  EXPECT_THAT(measured["machine"].get<std::string>(), has("NVIDIA Fake 9000, sm_90"));
  for (const char* rate : {"copy_bytes_per_s", "launch_s", "graph_node_s"})
    EXPECT_GT(measured[rate].get<double>(), 0) << rate;
  EXPECT_TRUE(measured["flops_per_s"].contains("f32")) << measured;
}

// The device's part of a trace, as doctor sees it, and its numbers in the metrics.
TEST_F(CudaTrain, ATraceHasTheDeviceAndMetricsItsNumbers) {
  const std::string tools =
      "export RIDGE_CUPTI=" RIDGE_FAKE_CUPTI " FAKE_CUPTI_DRIVER=" RIDGE_FAKE_CUDA ";";
  // The stand-in for the recorder hears of no graph that was captured before it was there.
  fine("train mlp.toml --device cuda --steps 14 --set train.capture=off --trace trace.json", tools);
  const json trace = json::parse(text_of(folder_ / "trace.json"));
  size_t kernels = 0, with_site = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") != "kernel") continue;
    ++kernels;
    with_site += event["args"].contains("site");
  }
  EXPECT_GT(kernels, 20u);
  EXPECT_EQ(with_site, kernels);
  EXPECT_EQ(trace["deviceProperties"][0]["name"], "NVIDIA Fake 9000");
  // The stand-in works while the host waits for it, which is a finding.
  const Ended doctor = ridge("doctor trace.json");
  EXPECT_EQ(doctor.code, 1) << doctor.err;
  EXPECT_THAT(doctor.out, has("the device is busy 0.0"));
  // Without the recorder the run goes on, and says so.
  const Ended without = fine("train mlp.toml --device cuda --steps 14 --trace other.json",
                             "export RIDGE_CUPTI=/nowhere/libcupti.so;");
  EXPECT_THAT(without.err,
              has("the trace is without the device: [cupti] cannot open the recorder of GPUs: "
                  "/nowhere/libcupti.so: ",
                  "RIDGE_CUPTI"));
}

TEST_F(CudaTrain, KernelsAreTimedAndKeptForTheirGpu) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string tune = "export RIDGE_TUNE=true;";
  fine("train mlp.toml --device cuda --steps 1", tune);
  fine("train mlp.toml --device cuda --steps 1", tune);
}

TEST_F(CudaTrain, ARunThatLosesItsDeviceEndsCleanlyAndIsResumed) {
  const std::string words = "train mlp.toml --device cuda --set checkpoint.every=2 --out ";
  const json whole = report_of(words + "whole");
  const std::string log = (folder_ / "lost-log").string();
  // Behind the first checkpoints, in the middle of a step.
  std::istringstream calls(text_of(folder_ / "log"));
  size_t launches = 0;
  for (std::string line; std::getline(calls, line);) launches += line.starts_with("cuGraphLaunch");
  ASSERT_GT(launches, 4u);
  const std::string loses = fmt::format(
      "export FAKE_CUDA_FAIL=cuGraphLaunch@{}=719 FAKE_CUDA_LOG={};", launches * 3 / 4, log);
  EXPECT_THAT(error_of(words + "lost --json", loses),
              has("error: CUDA: cuGraphLaunch(", "--resume auto"));
  EXPECT_EQ(wrongs(log), std::vector<std::string>{});
  EXPECT_EQ(report_of(words + "lost --resume auto")["state_hash"], whole["state_hash"]);
  EXPECT_EQ(losses("lost"), losses("whole"));
}

// With kernels that are timed before memory is counted, too.
TEST_F(CudaTrain, TooLittleMemoryIsOneClearError) {
  const std::string large = "train mlp.toml --device cuda --set model.hidden=4096,4096";
  for (const std::string tune : {"", "export RIDGE_TUNE=true;"})
    EXPECT_THAT(error_of(large, tune + "export FAKE_CUDA_MIB=16;"),
                has("error: out of device memory: the plan needs ",
                    " MiB of 'cuda' are free",
                    "make the model smaller"));
  EXPECT_THAT(error_of(large, "export FAKE_CUDA_OTHERS_MIB=1000;"), has("are free beside 1000."));
}

}  // namespace
}  // namespace ridge
