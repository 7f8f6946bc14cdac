// Reports of `ridge optimize` as they come out: of a configuration and of a program, each once with
// a gain and once without. The pages made from them are looked at by tools/check_pages.
#pragma once

#include <string>
#include <vector>

#include "ridge/proof/report/summary.h"
#include "ridge/proof/trial_groups.h"
#include "tests/tune/ledger_records.h"

namespace ridge::test {

struct SampleReport {
  std::string name;
  OptimizeSummary summary;
  std::vector<TrialRecord> trials;
};

struct SampleTrial {
  std::string technique, change;
  TrialVerdict verdict = TrialVerdict::kNotTried;
  std::string reason{};
  double gain = 0;  ///< Factor that was measured; 0: nothing was.
  std::optional<SpeedRange> predicted{};
  std::optional<double> ceiling{};
  SemanticClass semantic_class = SemanticClass::kBitIdentical;
  std::string guard{};
  int pairs = 15;
  double spread = 1;  ///< By how much more than those of some_pairs() they scatter.
};

inline std::vector<TrialRecord> records_of(const std::vector<SampleTrial>& samples) {
  std::vector<TrialRecord> records;
  for (const SampleTrial& sample : samples) {
    TrialRecord& record = records.emplace_back();
    record.number = static_cast<int64_t>(records.size());
    record.technique = sample.technique;
    record.change = sample.change;
    record.verdict = sample.verdict;
    record.reason = sample.reason;
    record.predicted = sample.predicted;
    record.ceiling = sample.ceiling;
    record.semantic_class = sample.semantic_class;
    record.guard = sample.guard;
    if (sample.gain == 0) continue;
    record.pairs = some_pairs(sample.pairs, std::log(sample.gain), 7 + records.size());
    for (PairRecord& pair : record.pairs)
      pair.log_ratio =
          std::log(sample.gain) + sample.spread * (pair.log_ratio - std::log(sample.gain));
    finish(record);
  }
  return records;
}

inline StepTimeline sample_step(double wait_ms) {
  StepTimeline step{.step_ms = 27 + wait_ms, .launches = {}, .merged = 0};
  step.launches.push_back({"loader wait", "step", 0, wait_ms});
  const char* names[] = {"conv2d",
                         "fused bias, relu, pool",
                         "matmul",
                         "conv2d_grad_of_a_name_that_is_far_too_long_for_any_key",
                         "adamw",
                         "max_pool",
                         "softmax",
                         "gather",
                         "reduce",
                         "transpose"};
  for (int i = 0; i < 40; ++i)
    step.launches.push_back(
        {names[i % 10], "step", wait_ms + 0.6 * i, 0.55, "stages.1.0.second.conv:12"});
  step.launches.push_back({"sample", "loader 0", 1, 20});
  step.launches.push_back({"sample", "loader 1", 3, 21});
  return step;
}

inline VariantSpeed sample_variant(double step_ms, double wait_ms) {
  return {
      .step_ms = step_ms,
      .step_samples = 64,
      .samples_per_s = 64e3 / step_ms,
      .loader_wait_share = wait_ms / step_ms,
      .planned_bytes = 160 << 20,
      .measured_bytes = 161 << 20,
      .joules_per_step = {},
      .config =
          "[train]\nbatch = 64\nout = \"/a/rather/long/path/of/a/folder/of/results/that/"
          "does/not/fit/into/any/phone\"\n",
      .timeline = sample_step(wait_ms),
      .memory = {
          {"state", 60 << 20}, {"arena", 80 << 20}, {"batches that the loader stages", 20 << 20}}};
}

inline OptimizeSummary sample_summary(bool gained) {
  OptimizeSummary summary;
  summary.target = "examples/fashion_mnist.toml on cpu";
  summary.recipe_use = "ridge train examples/fashion_mnist.toml --recipe";
  summary.doctor_use =
      "ridge train examples/fashion_mnist.toml --steps 14 --trace step.json && ridge doctor "
      "step.json";
  summary.machine = "cpu; AMD EPYC 9R14 96-Core Processor; 2 CPUs; AVX-512; Linux 6.1";
  summary.baseline = summary.result = sample_variant(33, 6);
  summary.budget_s = 120;
  summary.seconds = 97.4;
  summary.ledger_path = "runs/fashion_mnist-optimize/ledger.jsonl";
  summary.guard = {.verdict = "not_needed", .text = "no change that was kept touches numbers"};
  summary.energy_problem = "this machine shows no energy counters";
  if (!gained) return summary;
  summary.result = sample_variant(20, 0.4);
  summary.claim = {.speedup = 1.65, .low = 1.58, .high = 1.71, .pairs = 40, .confidence = 0.95};
  summary.guard = {.margin = 0.0125,
                   .power = 0.86,
                   .verdict = "passed",
                   .text = "156 tensors agree in steps from 5 states; 5 pairs of runs"};
  summary.recipe = "cpu.jit = true\n[loader]\nworkers = 2\n[train]\nprecision = \"bf16\"\n";
  summary.recipe_path = "runs/fashion_mnist-optimize/recipe.toml";
  summary.notes = {"two pairs were lost to other guests of the machine"};
  summary.price_per_hour = 3.6;
  return summary;
}

inline std::vector<SampleTrial> sample_useless() {
  return {{"recompute", "", TrialVerdict::kNotTried, "no memory limit"},
          {"micro",
           "train.micro 1 -> 2",
           TrialVerdict::kRefused,
           "predicted to gain too little for a trial",
           0,
           SpeedRange{0.7, 0.9},
           1.4},
          {"metrics", "", TrialVerdict::kNotTried, "reporting costs 0.1 ms of 33 ms", 0, {}, 1.003},
          {"kernels",
           "train.kernels \"exact\" -> \"fast\"",
           TrialVerdict::kRefused,
           "the plan stays as it is: no kernel with other bits is faster"}};
}

inline SampleReport engine_gain() {
  std::vector<SampleTrial> trials = {{"loader.workers",
                                      "loader.workers 0 -> 2",
                                      TrialVerdict::kKept,
                                      "faster",
                                      1.28,
                                      SpeedRange{1.2, 1.31},
                                      1.34,
                                      SemanticClass::kBitIdentical,
                                      "same bits of the state after 2 steps"},
                                     {"bf16",
                                      "train.precision \"f32\" -> \"bf16\"",
                                      TrialVerdict::kKept,
                                      "faster",
                                      1.3,
                                      SpeedRange{1.35, 1.5},
                                      19.3,
                                      SemanticClass::kPrecision,
                                      "no evidence of loss above 0.0125, at power 0.86"},
                                     {"jit",
                                      "cpu.jit false -> true",
                                      TrialVerdict::kNotFaster,
                                      "not 2 % faster",
                                      1.003,
                                      SpeedRange{0.99, 1.06},
                                      19.3},
                                     {"loss_scale",
                                      "train.loss_scale 1 -> 1024",
                                      TrialVerdict::kGuardFailed,
                                      "the gradient of stages.1.0.second.conv.weight is further "
                                      "from f64 than 3 times the reference's",
                                      1.19,
                                      SpeedRange{1.1, 1.3},
                                      19.3,
                                      SemanticClass::kPrecision},
                                     {"threads",
                                      "threads 2 -> 1",
                                      TrialVerdict::kFailed,
                                      "the worker ended by signal 9",
                                      0,
                                      SpeedRange{1.0, 1.1}},
                                     {"batch",
                                      "train.batch 64 -> 128, optimizer.lr 0.001 -> 0.00141421",
                                      TrialVerdict::kNotTried,
                                      "changes the trajectory; allow it by --allow-trajectory",
                                      0,
                                      {},
                                      5.3,
                                      SemanticClass::kTrajectory}};
  for (const SampleTrial& trial : sample_useless()) trials.push_back(trial);
  return {"optimize-config-gain", sample_summary(true), records_of(trials)};
}

inline SampleReport engine_without_gain() {
  std::vector<SampleTrial> trials = {{"jit",
                                      "cpu.jit false -> true",
                                      TrialVerdict::kNotFaster,
                                      "not 2 % faster",
                                      1.004,
                                      SpeedRange{0.99, 1.06}},
                                     {"loader.workers",
                                      "loader.workers 0 -> 2",
                                      TrialVerdict::kOpen,
                                      "no verdict after 12 pairs",
                                      1.03,
                                      SpeedRange{1.0, 1.12},
                                      1.22,
                                      SemanticClass::kBitIdentical,
                                      "",
                                      14,
                                      4},
                                     {"bf16",
                                      "train.precision \"f32\" -> \"bf16\"",
                                      TrialVerdict::kNotTried,
                                      std::string(kNoTime),
                                      0,
                                      {},
                                      19.3,
                                      SemanticClass::kPrecision}};
  for (const SampleTrial& trial : sample_useless()) trials.push_back(trial);
  return {"optimize-config-none", sample_summary(false), records_of(trials)};
}

inline OptimizeSummary program_summary(bool gained) {
  OptimizeSummary summary = sample_summary(gained);
  const std::string command =
      "python examples/pytorch/image_classifier.py pictures --epochs 30 --out "
      "'/a/rather/long/path/of/a folder of results/that-does-not-fit-into-any-phone'";
  summary.target = "examples/pytorch/image_classifier.py";
  summary.subject = "program";
  summary.recipe_use = "ridge run --recipe";
  summary.recipe_rest = " -- " + command;
  summary.doctor_use = "ridge doctor -- " + command;
  summary.ledger_path =
      "/home/somebody/.local/state/ridge/image_classifier-0123abcd-optimize/ledger.jsonl";
  if (gained)
    summary.recipe_path =
        "/home/somebody/.local/state/ridge/image_classifier-0123abcd-optimize/recipe.toml";
  summary.energy_problem = "this machine shows no energy counters (RAPL)";
  summary.price_per_hour.reset();
  for (VariantSpeed* variant : {&summary.baseline, &summary.result}) {
    variant->planned_bytes = 0;
    variant->config.clear();
    variant->timeline = {};
    variant->memory.clear();
  }
  return summary;
}

inline std::vector<SampleTrial> useless_for_a_program() {
  const auto refused = [](std::string technique, std::string reason) {
    return SampleTrial{std::move(technique), "", TrialVerdict::kRefused, std::move(reason)};
  };
  return {refused("cudnn.benchmark", "the program does not use CUDA"),
          refused("tf32", "the program does not use CUDA"),
          refused("cuda.graphs", "the program does not use CUDA"),
          refused("fp16", "fp16 is for CUDA"),
          refused("attention", "no attention is seen that is written out"),
          {"huge_pages", "", TrialVerdict::kNotTried, "it is so already"},
          refused("allocator", "neither jemalloc, tcmalloc nor mimalloc is installed")};
}

inline SampleReport program_gain() {
  std::vector<SampleTrial> trials = {
      {"channels_last",
       "channels_last = true",
       TrialVerdict::kKept,
       "faster",
       1.66,
       {},
       60.39,
       SemanticClass::kReassociation,
       "the losses of 60 steps differ by no more than those of other orders",
       18,
       9},
      {"autocast",
       "autocast = \"bf16\"",
       TrialVerdict::kKept,
       "faster",
       1.6,
       {},
       27.62,
       SemanticClass::kPrecision,
       "no evidence of loss above 0.031, at power 1",
       18,
       12},
      {"loader.workers",
       "loader.workers = 2, loader.persistent = true, loader.prefetch = 4, loader.pin = false",
       TrialVerdict::kNotFaster,
       "not faster",
       0.7,
       {},
       1.03},
      {"optimizer.fused",
       "optimizer.fused = true",
       TrialVerdict::kOpen,
       "no verdict after 12 pairs",
       1.04,
       {},
       13.05,
       SemanticClass::kReassociation,
       "",
       14,
       6},
      {"compile",
       "compile = \"default\"",
       TrialVerdict::kFailed,
       "exit code 1; its last lines:\nTraceback (most recent call last):\n  File \"train.py\", "
       "line "
       "12, in <module>\ntorch._inductor.exc.InductorError: CppCompileError"}};
  for (const SampleTrial& trial : useless_for_a_program()) trials.push_back(trial);
  return {"optimize-program-gain", program_summary(true), records_of(trials)};
}

inline SampleReport program_without_gain() {
  std::vector<SampleTrial> trials = {
      {"loader.workers",
       "loader.workers = 2",
       TrialVerdict::kNotFaster,
       "not faster",
       0.7,
       {},
       1.03},
      {"threads", "threads = 1", TrialVerdict::kNotFaster, "not faster", 0.93}};
  for (const SampleTrial& trial : useless_for_a_program()) trials.push_back(trial);
  return {"optimize-program-none", program_summary(false), records_of(trials)};
}

inline std::vector<SampleReport> sample_reports() {
  return {engine_gain(), engine_without_gain(), program_gain(), program_without_gain()};
}

}  // namespace ridge::test
