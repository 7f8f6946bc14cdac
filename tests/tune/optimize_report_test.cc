// The report of `ridge optimize`: page, JSON and text have the same numbers, claim nothing that was
// not proven, and stand whatever is in them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>

#include "ridge/proof/report/pictures.h"
#include "ridge/proof/report/report.h"
#include "ridge/proof/report/words.h"
#include "tests/tune/sample_reports.h"

namespace ridge {
namespace {

StepTimeline some_step(double scale) {
  StepTimeline step{.step_ms = 27 + 3 * scale, .launches = {}, .merged = 0};
  step.launches.push_back({"loader wait", "step", 0, 3 * scale});
  const char* names[] = {"conv2d",
                         "fused",
                         "matmul",
                         "conv2d_grad",
                         "adamw",
                         "max_pool",
                         "softmax",
                         "gather",
                         "reduce",
                         "transpose"};
  for (int i = 0; i < 40; ++i)
    step.launches.push_back({names[i % 10], "step", 3 * scale + 0.6 * i, 0.55, "a.b:1"});
  step.launches.push_back({"sample", "loader 0", 1, 20});
  return step;
}

OptimizeSummary some_summary() {
  OptimizeSummary summary;
  summary.target = "run.toml on cpu";
  summary.machine = "cpu; a processor; 2 CPUs";
  summary.baseline = {
      .step_ms = 30,
      .samples_per_s = 2133,
      .loader_wait_share = 0.25,
      .planned_bytes = 160 << 20,
      .measured_bytes = 161 << 20,
      .joules_per_step = {},
      .config = "[train]\nbatch = 64\n",
      .timeline = some_step(2),
      .memory = {{"parameter", 60 << 20}, {"optimizer", 80 << 20}, {"arena", 20 << 20}}};
  summary.result = summary.baseline;
  summary.result.step_ms = 20;
  summary.result.samples_per_s = 3200;
  summary.result.loader_wait_share = 0.01;
  summary.result.joules_per_step = 0.5;
  summary.result.timeline = some_step(0.1);
  summary.claim = {.speedup = 1.5, .low = 1.45, .high = 1.55, .pairs = 40, .confidence = 0.95};
  summary.guard = {.margin = 0.0125, .power = 0.86, .verdict = "passed", .text = "5 pairs of runs"};
  summary.recipe = "[loader]\nworkers = 2\n";
  summary.budget_s = 120;
  summary.seconds = 97.4;
  summary.price_per_hour = 3.6;
  summary.notes = {"two pairs were lost to other guests of the machine"};
  summary.recipe_path = "recipe.toml";
  return summary;
}

std::vector<TrialRecord> some_trials() {
  TrialRecord proof = test::kept_trial(5);
  proof.technique = kProofTechnique;
  return {test::kept_trial(1), test::untried_trial(2), test::slow_trial(4), proof};
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(OptimizeReport, JsonIsThatOfTheSchema) {
  const auto json = nlohmann::json::parse(optimize_json(some_summary(), some_trials()));
  EXPECT_EQ(json.at("schema"), "ridge.optimize/1");
  EXPECT_EQ(json.at("target"), "run.toml on cpu");
  EXPECT_EQ(json.at("baseline").at("step_ms"), 30);
  EXPECT_EQ(json.at("result").at("planned_bytes"), 160 << 20);
  EXPECT_TRUE(json.at("baseline").at("joules_per_step").is_null());
  EXPECT_EQ(json.at("result").at("joules_per_step"), 0.5);
  // 3.6 an hour are 0.001 a second; 1000 steps of 20 ms are 20 s.
  EXPECT_DOUBLE_EQ(json.at("result").at("price_of_1000_steps"), 0.02);
  EXPECT_EQ(json.at("claim").at("speedup"), 1.5);
  EXPECT_EQ(json.at("claim").at("lo"), 1.45);
  EXPECT_EQ(json.at("claim").at("hi"), 1.55);
  EXPECT_EQ(json.at("claim").at("pairs"), 40);
  EXPECT_EQ(json.at("claim").at("confidence"), 0.95);
  ASSERT_EQ(json.at("trials").size(), 3u);  // the proof is the claim
  const auto& trial = json.at("trials").at(0);
  EXPECT_EQ(trial.at("technique"), "loader.workers");
  EXPECT_EQ(trial.at("class"), "bit_identical");
  EXPECT_EQ(trial.at("predicted").at("hi"), 1.5);
  EXPECT_TRUE(trial.at("measured").at("mid").is_number());
  EXPECT_EQ(trial.at("verdict"), "kept");
  EXPECT_EQ(json.at("trials").at(1).at("reason"), "ceiling 1.01");
  EXPECT_EQ(json.at("guard").at("margin"), 0.0125);
  EXPECT_EQ(json.at("guard").at("power"), 0.86);
  EXPECT_EQ(json.at("guard").at("verdict"), "passed");
  EXPECT_EQ(json.at("recipe"), "[loader]\nworkers = 2\n");
  EXPECT_EQ(json.at("budget_s"), 120);
}

// Steps of another number of samples: time, energy and money are those of the same samples.
TEST(OptimizeReport, ClaimsOfOtherBatchesAreASample) {
  OptimizeSummary summary = some_summary();
  summary.baseline.step_samples = 64;
  summary.result.step_samples = 128;
  summary.result.step_ms = 40;
  summary.claim.per_sample = true;
  const auto json = nlohmann::json::parse(optimize_json(summary, some_trials()));
  EXPECT_EQ(json.at("claim").at("per_sample"), true);
  EXPECT_EQ(json.at("result").at("step_samples"), 128);
  // 3.6 an hour are 0.001 a second; 500 steps of 40 ms are 20 s.
  EXPECT_DOUBLE_EQ(json.at("result").at("price_of_1000_steps"), 0.02);
  EXPECT_DOUBLE_EQ(json.at("baseline").at("price_of_1000_steps"), 0.03);
  const std::string text = optimize_text(summary, some_trials());
  for (const char* part : {"run.toml on cpu: 1.50 times as fast per sample\n",
                           "  samples a step             64 -> 128\n",
                           "  energy of 1,000 steps before not measured -> 250 J\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  std::vector<TrialRecord> trials = some_trials();
  trials[0].semantic_class = SemanticClass::kTrajectory;
  const std::string page = optimize_html(summary, trials);
  EXPECT_NE(page.find("loader.workers 0 -&gt; 2 (trajectory)</span>"), std::string::npos);
  EXPECT_NE(page.find("1.50 times as fast per sample"), std::string::npos);
  EXPECT_EQ(page.find("40 ms</"), page.rfind("40 ms</"));  // in the table alone
}

// Without a recipe there is no claim, whatever the numbers say.
TEST(OptimizeReport, NothingGainedClaimsNothing) {
  OptimizeSummary summary = some_summary();
  summary.recipe.clear();
  const auto json = nlohmann::json::parse(optimize_json(summary, {}));
  EXPECT_EQ(json.at("claim").at("speedup"), 1);
  EXPECT_EQ(json.at("claim").at("lo"), 1);
  EXPECT_EQ(json.at("claim").at("hi"), 1);
  EXPECT_EQ(json.at("recipe"), "");
  EXPECT_EQ(json.at("trials").size(), 0u);
  for (const std::string& text : {optimize_html(summary, {}), optimize_text(summary, {})}) {
    EXPECT_NE(text.find("nothing was gained"), std::string::npos);
    EXPECT_EQ(text.find("1.50 times"), std::string::npos);
  }
}

TEST(OptimizeReport, SaysWhatHoldsTheResultBackNow) {
  OptimizeSummary summary = test::program_gain().summary;
  EXPECT_TRUE(nlohmann::json::parse(optimize_json(summary, {})).at("examination").is_null());
  EXPECT_EQ(optimize_text(summary, {}).find("holds it back"), std::string::npos);
  summary.examination = {
      .findings = {{"R01", "input starved", 0.4, 1.66, "let workers make batches ahead"},
                   {"R18", "tiny operators", 0.2, 1.25, "compile"},
                   {"R21", "a loop over parameters", 0.1, 1.11, "fuse"},
                   {"R30", "too many threads", 0.05, 1.05, "fewer"}}};
  summary.baseline.cpu_idle_share = 0.375;
  summary.result.cpu_idle_share = 0.0;
  summary.result.device_bytes = 3 << 20;
  const std::string text = optimize_text(summary, {});
  for (const char* part :
       {"\n  holds it back now          R01 input starved (40 % of a step, 1.66 times at most)\n",
        "\n  processors idle            37.5 % -> 0.0 %\n",
        "\n  memory at its peak         161.0 MiB\n",
        "\n  GPU memory at its peak     not measured -> 3.0 MiB\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  EXPECT_EQ(text.find("GPU idle"), std::string::npos) << text;
  EXPECT_EQ(text.find("R30"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(optimize_json(summary, {}));
  EXPECT_EQ(json.at("examination").at("findings").size(), 4u);
  EXPECT_EQ(json.at("examination").at("findings").at(0).at("fix"),
            "let workers make batches ahead");
  EXPECT_EQ(json.at("baseline").at("cpu_idle_share"), 0.375);
  EXPECT_TRUE(json.at("result").at("device_idle_share").is_null());
  EXPECT_TRUE(json.at("baseline").at("device_bytes").is_null());
  const std::string page = optimize_html(summary, {});
  EXPECT_NE(page.find("What holds it back now"), std::string::npos);
  EXPECT_NE(page.find("R30 too many threads"), std::string::npos);

  summary.examination = {.problem = "it takes about 20 s, and 3 s of the budget are left"};
  EXPECT_NE(optimize_text(summary, {})
                .find("holds it back now          not examined: it takes about 20 s"),
            std::string::npos);
  summary.recipe.clear();
  summary.examination = StepExamination{};
  EXPECT_NE(optimize_text(summary, {}).find("holds it back              nothing that the doctor"),
            std::string::npos);
}

TEST(OptimizeReport, AConfirmationIsSaid) {
  OptimizeSummary summary = test::program_gain().summary;
  EXPECT_TRUE(nlohmann::json::parse(optimize_json(summary, {})).at("confirmation").is_null());
  summary.confirmation = {.verdict = ConfirmVerdict::kConfirmed,
                          .loss = "held-out loss",
                          .pairs = 2,
                          .steps = 300,
                          .margin = 0.01,
                          .difference = 0.002,
                          .text = "held-out loss 0.5"};
  const auto json = nlohmann::json::parse(optimize_json(summary, {})).at("confirmation");
  EXPECT_EQ(json.at("verdict"), "confirmed");
  EXPECT_EQ(json.at("margin"), 0.01);
  EXPECT_EQ(json.at("pairs"), 2);
  EXPECT_NE(optimize_text(summary, {}).find("\n  confirmation               confirmed: held-out"),
            std::string::npos);
  EXPECT_NE(optimize_html(summary, {}).find("confirmed: held-out loss 0.5"), std::string::npos);
  // Refused, it stands where there is no gain any more.
  summary.confirmation->verdict = ConfirmVerdict::kRefused;
  summary.confirmation->difference.reset();
  summary.recipe.clear();
  summary.advice = "What was kept is faster and trains worse";
  const std::string text = optimize_text(summary, {});
  EXPECT_NE(text.find("No proven gain. What was kept is faster and trains worse"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("confirmation               refused: held-out loss 0.5"), std::string::npos);
  EXPECT_NE(optimize_html(summary, {}).find("refused: held-out"), std::string::npos);
}

// One step, not two that are equal: no arrow, no second bar, no column for what did not change.
TEST(OptimizeReport, NothingGainedComparesNothing) {
  for (const test::SampleReport& report :
       {test::engine_without_gain(), test::program_without_gain()}) {
    const std::string text = optimize_text(report.summary, report.trials);
    const std::string page = optimize_html(report.summary, report.trials);
    EXPECT_GT(text.find(" -> "), text.find("  took  ")) << text;  // in the table of trials alone
    EXPECT_NE(text.find("\n  time of a step             33 ms\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("not measured"), std::string::npos) << text;
    EXPECT_EQ(page.find("\u2192"), std::string::npos);
    EXPECT_EQ(page.find("From the old step"), std::string::npos);
    EXPECT_EQ(page.find(">before"), std::string::npos);
    EXPECT_EQ(page.find("Configuration after"), std::string::npos);
    for (const char* row : {"tried ", "may be hidden ", "next "})
      EXPECT_NE(text.find(std::string("\n  ") + row), std::string::npos) << row << text;
    EXPECT_NE(page.find("<dt>may be hidden</dt>"), std::string::npos);
  }
}

// A limit of memory makes a recipe without any proof.
TEST(OptimizeReport, ALimitOfMemoryAloneIsNoClaim) {
  OptimizeSummary summary = test::sample_summary(false);
  summary.recipe = "[train]\nmemory_limit = 4\n";
  for (const std::string& text : {optimize_html(summary, {}), optimize_text(summary, {})}) {
    EXPECT_NE(text.find("the limit of memory is kept; nothing faster was found"),
              std::string::npos);
    EXPECT_NE(text.find("memory_limit = 4"), std::string::npos);
    EXPECT_EQ(text.find("1.00"), std::string::npos) << text;
  }
}

TEST(OptimizeReport, PageHasTheNumbersAndNeedsNothingElse) {
  const std::string page = optimize_html(some_summary(), some_trials());
  for (const char* part : {"1.50 times as fast",
                           "between 1.45 and 1.55 times, with 95 % confidence, from 40 pairs",
                           "<b>30 \u2192 20</b><span>ms a step</span>",
                           "160.0 MiB",
                           "not measured",
                           "500 J",
                           "0.02",
                           "no evidence of loss above 0.0125, at power 0.86 (5 pairs of runs)",
                           "[loader]\nworkers = 2",
                           "ridge train CONFIG --recipe recipe.toml",
                           "two pairs were lost",
                           "loader.workers 0 -&gt; 2",
                           "predicted 1.20 to 1.50",
                           "1 other cannot help here",
                           "ceiling 1.01",
                           "not faster by 2 %",
                           "Configuration before",
                           "took 97 s of 120 s"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("://"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<b>proof"), std::string::npos);
  // Waterfall, step, memory, the scale of the trials, and a line of it for each of the two.
  EXPECT_EQ(count(page, "<svg"), 6u);
}

// The answer first: the claim, then what was kept, what came close, and folded what cannot help.
TEST(OptimizeReport, PageAnswersFirst) {
  const test::SampleReport report = test::engine_gain();
  const std::string page = optimize_html(report.summary, report.trials);
  const std::vector<const char*> order = {"1.65 times as fast",
                                          "Use it",
                                          "What was tried",
                                          "<b>kept</b><div class=\"what\"><b>loader.workers</b>",
                                          "<b>kept</b><div class=\"what\"><b>bf16</b>",
                                          "<b>guard failed</b>",
                                          "<b>not faster</b>",
                                          "<b>failed</b>",
                                          "not tried (changes the trajectory",
                                          "<summary>4 others cannot help here</summary>",
                                          "no memory limit",
                                          "From the old step to the new one",
                                          "Before and after"};
  for (size_t i = 1; i < order.size(); ++i)
    EXPECT_LT(page.find(order[i - 1]), page.find(order[i])) << order[i];
  EXPECT_NE(page.find(order.back()), std::string::npos);
  EXPECT_EQ(page.find("19.3"), std::string::npos);  // a ceiling that no change reaches
}

TEST(OptimizeReport, TextHasClaimAndTrials) {
  const std::string text = optimize_text(some_summary(), some_trials());
  for (const char* part :
       {"run.toml on cpu: 1.50 times as fast\n",
        "  time of a step             30 ms -> 20 ms\n",
        "  memory, planned            160.0 MiB\n",
        "  energy of 1,000 steps      not measured -> 500 J\n",
        "  took                       97 s of 120 s\n",
        "\n  1  loader.workers          kept         ",
        "\n  1 other cannot help here; --all says why\n",
        "\n  [loader]\n  workers = 2\n",
        "\n  recipe                     recipe.toml\n",
        "\n  use                        ridge train CONFIG --recipe recipe.toml\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("proof"), std::string::npos);
  EXPECT_EQ(text.find("ledger"), std::string::npos);
  EXPECT_EQ(text.find("micro"), std::string::npos);
  const std::string all = optimize_text(some_summary(), some_trials(), true);
  EXPECT_NE(all.find("\n  2  micro                   not tried    ceiling 1.01\n"),
            std::string::npos)
      << all;
}

TEST(OptimizeReport, CommandsAreTheUsersOwn) {
  OptimizeSummary summary = some_summary();
  summary.recipe_path = "my recipes/recipe.toml";
  summary.recipe_use = "ridge run --recipe";
  summary.recipe_rest = " -- python train.py";
  const std::string command = "ridge run --recipe 'my recipes/recipe.toml' -- python train.py";
  EXPECT_EQ(recipe_command(summary), command);
  EXPECT_NE(optimize_text(summary, {}).find("  use                        " + command),
            std::string::npos);
}

TEST(OptimizeReport, ADryRunClaimsNothing) {
  OptimizeSummary summary = some_summary();
  summary.is_dry = true;
  summary.recipe.clear();
  summary.parts = {"baseline: 30 ms a step"};
  const std::string text = optimize_text(summary, some_trials());
  EXPECT_TRUE(text.starts_with("run.toml on cpu: nothing was tried\n\n  baseline: 30 ms a step\n"))
      << text;
  EXPECT_EQ(text.find("gained"), std::string::npos) << text;
  EXPECT_NE(optimize_text(summary, some_trials(), true).find("\n  2  micro "), std::string::npos);
  const auto json = nlohmann::json::parse(optimize_json(summary, some_trials()));
  EXPECT_EQ(json.at("dry_run"), true);
  EXPECT_EQ(json.at("parts").at(0), "baseline: 30 ms a step");
}

// Of the attribute `name` of all rects, in order.
std::vector<double> attributes(const std::string& svg, const std::string& name) {
  std::vector<double> values;
  const std::regex pattern("<rect[^>]* " + name + "=\"([-0-9.e]+)%\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), pattern), end; it != end; ++it)
    values.push_back(std::stod((*it)[1]));
  return values;
}

// Each step begins where the one before it ended; lengths are the times.
TEST(OptimizePictures, WaterfallFalls) {
  TrialRecord a = test::kept_trial(1), b = test::kept_trial(2);
  a.measured = SpeedEstimate{1.1, 1.2, 1.3, 0.95};
  b.measured = SpeedEstimate{1.2, 1.25, 1.3, 0.95};
  const std::string svg = waterfall(some_summary(), std::vector{a, test::slow_trial(2), b}).svg;
  const std::vector<double> x = attributes(svg, "x"), width = attributes(svg, "width");
  ASSERT_EQ(x.size(), 4u) << svg;
  const double ms = width[0] / 30;
  EXPECT_NEAR(width[1], ms * 5, 0.05);  // 30 to 25
  EXPECT_NEAR(x[1] + width[1], x[0] + width[0], 0.05);
  EXPECT_NEAR(width[2], ms * 5, 0.05);  // 25 to 20
  EXPECT_NEAR(x[2] + width[2], x[1], 0.05);
  EXPECT_NEAR(width[3], ms * 20, 0.05);
  EXPECT_EQ(x[3], x[0]);
}

// A step that was dropped in the end is no part of the way.
TEST(OptimizePictures, WaterfallLeavesOutWhatWasDropped) {
  TrialRecord a = test::kept_trial(1), b = test::kept_trial(2), gone = test::kept_trial(3);
  b.technique = "jit";
  gone.technique = std::string(kWithout) + "jit";
  gone.verdict = TrialVerdict::kDropped;
  const auto bars = [](const std::vector<TrialRecord>& trials) {
    return attributes(waterfall(some_summary(), trials).svg, "x").size();
  };
  EXPECT_EQ(bars({a, b}), 4u);
  EXPECT_EQ(bars({a, b, gone}), 3u);
  gone.verdict = TrialVerdict::kKept;  // it was tried without, and stayed
  EXPECT_EQ(bars({a, b, gone}), 4u);
}

TEST(OptimizePictures, MemoryIsToScale) {
  OptimizeSummary summary = some_summary();
  summary.result.memory[0].bytes /= 2;
  const std::string svg = memory_map(summary).svg;
  const std::vector<double> width = attributes(svg, "width");
  ASSERT_EQ(width.size(), 6u);
  EXPECT_NEAR(width[0] / width[2], 3, 0.02);
  EXPECT_NEAR(width[1] / width[2], 4, 0.02);
  EXPECT_TRUE(memory_map({}).empty());
  EXPECT_NEAR(width[0] / width[3], 2, 0.02);
  // One bar where both are the same, and where there is but one.
  const Picture same = memory_map(some_summary());
  EXPECT_EQ(attributes(same.svg, "width").size(), 3u);
  EXPECT_NE(same.svg.find(">before and after: 160.0 MiB<"), std::string::npos);
  summary.recipe.clear();
  EXPECT_EQ(attributes(memory_map(summary).svg, "width").size(), 3u);
}

TEST(OptimizePictures, StepsShareAnAxis) {
  const Picture picture = step_timeline(some_summary());
  const std::string& svg = picture.svg;
  EXPECT_EQ(count(svg, "<title>loader wait: 6 ms</title>"), 1u);
  EXPECT_EQ(count(svg, "<title>loader wait: 0.3 ms</title>"), 1u);
  EXPECT_EQ(count(svg, "<title>conv2d (a.b:1): 0.55 ms</title>"), 8u);
  EXPECT_EQ(count(svg, ">loader 0<"), 2u);  // a row in each
  EXPECT_NE(svg.find(">before: 33 ms<"), std::string::npos);
  EXPECT_NE(svg.find(">after: 27.3 ms<"), std::string::npos);
  const auto has_key = [&picture](const std::string& text) {
    const auto& entries = picture.keys.at(0).entries;
    return std::any_of(
        entries.begin(), entries.end(), [&](const auto& entry) { return entry.text == text; });
  };
  EXPECT_TRUE(has_key("loader wait 6 \u2192 0.3 ms"));
  EXPECT_TRUE(has_key("5 others 11 \u2192 11 ms"));  // 12 names, 8 colours
  EXPECT_TRUE(step_timeline({}).empty());
  OptimizeSummary half = some_summary();
  half.result.timeline.launches.clear();
  EXPECT_NE(step_timeline(half).svg.find("not recorded"), std::string::npos);
}

// Steps of 33 and 27.3 ms: what takes 20 ms of each is as wide in both.
TEST(OptimizePictures, BothStepsHaveOneScale) {
  const std::string svg = step_timeline(some_summary()).svg;
  const std::vector<double> x = attributes(svg, "x"), width = attributes(svg, "width");
  ASSERT_GE(x.size(), 84u);
  EXPECT_NEAR(width[41], width[83], 0.05);  // the samples
  EXPECT_NEAR(x[41], x[83], 0.05);
  EXPECT_NEAR(width[41] / width[0], 20.0 / 6, 0.02);  // and the loader's wait before
  EXPECT_NEAR(x[40] + width[40], x[0] + width[0] * (6 + 0.6 * 39 + 0.55) / 6, 0.5);
}

TEST(OptimizeReport, PiecesThatWereMergedAreToldAndDrawnAsOneName) {
  OptimizeSummary summary = some_summary();
  summary.result.timeline.merged = 12;
  summary.result.timeline.launches = {{"5 short ones", "step", 0, 1},
                                      {"7 short ones", "step", 2, 1}};
  const std::string page = optimize_html(summary, {});
  EXPECT_NE(page.find("The 12 shortest pieces are drawn together"), std::string::npos);
  const auto json = nlohmann::json::parse(optimize_json(summary, {}));
  EXPECT_EQ(json.at("result").at("timeline").at("merged"), 12);
  EXPECT_EQ(json.at("baseline").at("timeline").at("launches").size(), 42u);
  summary.result.timeline = {};
  EXPECT_TRUE(
      nlohmann::json::parse(optimize_json(summary, {})).at("result").at("timeline").is_null());
}

TEST(OptimizeReport, EnergyHasARatioOrAReason) {
  OptimizeSummary summary = some_summary();
  summary.energy_problem = "this machine shows no energy counters";
  summary.result.joules_per_step = {};
  EXPECT_NE(
      optimize_html(summary, {}).find("Energy was not measured: this machine shows no energy"),
      std::string::npos);
  EXPECT_NE(optimize_text(summary, {}).find("  energy                     this machine shows"),
            std::string::npos);
  auto json = nlohmann::json::parse(optimize_json(summary, {}));
  EXPECT_EQ(json.at("energy").at("problem"), "this machine shows no energy counters");
  EXPECT_TRUE(json.at("energy").at("ratio").is_null());
  summary.energy_problem.clear();
  summary.baseline.joules_per_step = 0.75;
  summary.result.joules_per_step = 0.5;
  EXPECT_NE(optimize_text(summary, {}).find("750 J -> 500 J: 1.50 times less\n"),
            std::string::npos);
  json = nlohmann::json::parse(optimize_json(summary, {}));
  EXPECT_DOUBLE_EQ(json.at("energy").at("ratio"), 1.5);
  EXPECT_EQ(json.at("energy").at("problem"), "");
}

TEST(OptimizeReport, StandsWhateverIsInIt) {
  constexpr const char* kHostile = "</style><script>alert('1')</script>\" x=\"\xff\x1b[2J\x01";
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  OptimizeSummary summary = some_summary();
  summary.target = summary.machine = summary.recipe = summary.guard.text = kHostile;
  summary.baseline.config = summary.recipe_path = summary.ledger_path = kHostile;
  summary.notes = {kHostile};
  summary.baseline.timeline = {
      .step_ms = kNan,
      .launches = {{kHostile, kHostile, 0, 1, kHostile}, {"a", "b", 0, 1e300}, {"", "", -1, kNan}},
      .merged = -1};
  summary.energy_problem = kHostile;
  summary.baseline.memory = {{kHostile, -5}, {"x", std::numeric_limits<int64_t>::max()}};
  summary.result.step_ms = kNan;
  summary.result.joules_per_step = kNan;
  std::vector<TrialRecord> trials = some_trials();
  for (TrialRecord& trial : trials) {
    trial.technique = trial.change = trial.hypothesis = trial.reason = kHostile;
    trial.measured = SpeedEstimate{kNan, kNan, kNan, 0.95};
  }
  trials[0].measured = SpeedEstimate{0, 0, 1e300, 0.95};
  const std::string page = optimize_html(summary, trials);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
  EXPECT_EQ(optimize_text(summary, trials).find('\x1b'), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(optimize_json(summary, trials)));
  EXPECT_TRUE(nlohmann::json::accept(optimize_json({}, {})));
  EXPECT_FALSE(optimize_html({}, {}).empty());
  summary.claim = {.speedup = 0, .low = kNan, .high = 0};
  EXPECT_FALSE(optimize_html(summary, trials).empty());
}

}  // namespace
}  // namespace ridge
