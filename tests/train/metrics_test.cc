// metrics.jsonl and TensorBoard's files, read back by others than their writers. Runs in the root
// of the project.
#include "ridge/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridge/io/crc32c.h"
#include "ridge/train/tensorboard.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::TempFolder;
using test::user_error;

std::string text_of(const std::filesystem::path& path) { return ridge::read_file(path); }

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(text_of(path));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

StepReport step_at(int64_t step) {
  StepReport report;
  report.step = step;
  report.total_steps = 100;
  report.epoch = static_cast<double>(step) / 8;
  report.loss = 2.0 / static_cast<double>(step);
  report.grad_norm = 1e-300;
  report.lr = 3e-4;
  report.step_ms = 12.5;
  report.samples_per_s = 1e6;
  return report;
}

EvalReport eval_at(int64_t step) { return {step, 0.25, 0.9, 1000, 1.5}; }

TEST(Metrics, LinesAreJsonWithTheNumbersGiven) {
  const TempFolder folder;
  {
    MetricsWriter writer(folder / "metrics.jsonl", 0);
    writer.write(step_at(3));
    EvalReport eval = eval_at(3);
    eval.accuracy = std::nan("");
    writer.write(eval);
  }
  const auto lines = lines_of(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  const nlohmann::json step = {{"step", 3},
                               {"epoch", 0.375},
                               {"loss", 2.0 / 3},
                               {"grad_norm", 1e-300},
                               {"lr", 3e-4},
                               {"samples_per_s", 1e6},
                               {"step_ms", 12.5}};
  EXPECT_EQ(lines[0], step);
  const nlohmann::json eval = {{"step", 3},
                               {"eval_loss", 0.25},
                               {"eval_accuracy", nullptr},
                               {"eval_samples", 1000},
                               {"eval_seconds", 1.5}};
  EXPECT_EQ(lines[1], eval);
}

TEST(Metrics, ALossScaleIsToldWhereThereIsOne) {
  const TempFolder folder;
  StepReport report = step_at(3);
  report.grad_norm = HUGE_VAL;
  report.loss_scale = 32768;
  report.skipped_steps = 1;
  {
    MetricsWriter writer(folder / "metrics.jsonl", 0);
    writer.write(report);
  }
  const auto line = lines_of(folder / "metrics.jsonl").at(0);
  EXPECT_EQ(line.at("loss_scale"), 32768.0);
  EXPECT_EQ(line.at("skipped_steps"), 1);
  EXPECT_TRUE(line.at("grad_norm").is_null());
}

TEST(Metrics, AGpuIsReportedAsFarAsItIsKnown) {
  const TempFolder folder;
  GpuReading reading;
  reading.watts = 412.5;
  reading.memory_bytes = int64_t{30} << 30;
  reading.held_by = "power limit, thermal limit";
  StepReport report = step_at(3);
  report.gpu = &reading;
  {
    MetricsWriter writer(folder / "metrics.jsonl", 0);
    writer.write(report);
    reading = GpuReading();
    writer.write(report);
  }
  const auto lines = lines_of(folder / "metrics.jsonl");
  EXPECT_EQ(lines.at(0).at("gpu_watts"), 412.5);
  EXPECT_EQ(lines.at(0).at("gpu_memory_bytes"), int64_t{30} << 30);
  EXPECT_EQ(lines.at(0).at("gpu_held_by"), "power limit, thermal limit");
  for (const char* name : {"gpu_joules", "gpu_sm_mhz", "gpu_celsius"})
    EXPECT_FALSE(lines.at(0).contains(name)) << name;
  EXPECT_FALSE(lines.at(1).contains("gpu_watts"));
  EXPECT_EQ(lines.at(1).at("gpu_held_by"), "");
}

TEST(Metrics, WidestNumbersFit) {
  const TempFolder folder;
  GpuReading reading;
  reading.watts = reading.joules = reading.sm_mhz = reading.celsius = 1.2345678901234567e-300;
  reading.memory_bytes = INT64_MAX;
  reading.held_by = std::string(1000, 'w');
  StepReport wide;
  wide.gpu = &reading;
  wide.step = INT64_MIN;
  wide.epoch = wide.loss = wide.grad_norm = wide.lr = -1.2345678901234567e-300;
  wide.step_ms = wide.samples_per_s = -2.2250738585072014e-308;
  wide.loss_scale = 2.2250738585072014e-308;
  wide.skipped_steps = INT64_MIN;
  MetricsWriter writer(folder / "metrics.jsonl", 0);
  writer.write(wide);
  writer.flush();
  EXPECT_EQ(lines_of(folder / "metrics.jsonl")[0]["lr"], wide.lr);
}

std::vector<int64_t> steps_of(const std::filesystem::path& path) {
  std::vector<int64_t> steps;
  for (const auto& line : lines_of(path)) steps.push_back(line["step"]);
  return steps;
}

TEST(Metrics, ResumedRunNeitherMissesNorRepeatsSteps) {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  {
    MetricsWriter writer(path, 0);
    for (int64_t step = 1; step <= 10; ++step) writer.write(step_at(step));
    writer.write(eval_at(10));
  }
  // Killed in the middle of a line.
  const std::string whole = text_of(path);
  std::ofstream(path, std::ios::binary) << whole.substr(0, whole.size() - 20);
  for (const int64_t last : {10, 7, 7, 1}) {
    {
      MetricsWriter writer(path, last);
      for (int64_t step = last + 1; step <= last + 3; ++step) writer.write(step_at(step));
    }
    std::vector<int64_t> expected;
    for (int64_t step = 1; step <= last + 3; ++step) expected.push_back(step);
    EXPECT_EQ(steps_of(path), expected) << last;
  }
  // Evaluations belong to their step; a fresh run starts over.
  {
    MetricsWriter(path, 4).write(eval_at(4));
  }
  {
    const MetricsWriter resumed(path, 4);
  }
  EXPECT_EQ(steps_of(path), (std::vector<int64_t>{1, 2, 3, 4, 4}));
  {
    const MetricsWriter resumed(path, 3);
  }
  EXPECT_EQ(steps_of(path), (std::vector<int64_t>{1, 2, 3}));
  {
    const MetricsWriter fresh(path, 0);
  }
  EXPECT_EQ(text_of(path), "");
}

TEST(Metrics, AnyCutIsResumedFrom) {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  {
    MetricsWriter writer(path, 0);
    for (int64_t step = 1; step <= 3; ++step) writer.write(step_at(step));
  }
  const std::string whole = text_of(path);
  for (size_t size = 0; size <= whole.size(); ++size) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    {
      const MetricsWriter writer(path, 3);
    }
    const std::string kept = text_of(path);
    EXPECT_TRUE(whole.starts_with(kept) && (kept.empty() || kept.ends_with('\n'))) << size;
    EXPECT_EQ(std::count(kept.begin(), kept.end(), '\n'),
              std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size), '\n'));
  }
}

TEST(Metrics, ForeignFilesAreLeftAlone) {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  for (const std::string foreign :
       {"hello\n", "{\"step\":x}\n", "{\"step\":1,\"loss\":1}\nhello\n"}) {
    std::ofstream(path) << foreign;
    EXPECT_NE(user_error([&] { MetricsWriter(path, 9); }).find("no line of metrics"),
              std::string::npos);
    EXPECT_EQ(text_of(path), foreign);
  }
}

TEST(Metrics, WhatCannotBeWrittenIsSaid) {
  const TempFolder folder;
  EXPECT_NE(user_error([&] {
              MetricsWriter(folder / "none/metrics.jsonl", 0);
            }).find("No such file or directory"),
            std::string::npos);
  MetricsWriter full("/dev/full", 0);
  full.write(step_at(1));
  EXPECT_NE(user_error([&] { full.flush(); }).find("cannot write '/dev/full'"), std::string::npos);
}

TEST(Metrics, FullBuffersKeepTheOrder) {
  const TempFolder folder;
  {
    MetricsWriter writer(folder / "metrics.jsonl", 0);
    for (int64_t step = 1; step <= 2000; ++step) writer.write(step_at(step));
    EXPECT_GT(std::filesystem::file_size(folder / "metrics.jsonl"), 100000u);
  }
  const std::vector<int64_t> steps = steps_of(folder / "metrics.jsonl");
  ASSERT_EQ(steps.size(), 2000u);
  for (size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i], static_cast<int64_t>(i) + 1);
}

// RFC 3720, appendix B.4, and the check value of the catalogue of CRC algorithms.
TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xff'))), 0x62a8ab43u);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  EXPECT_EQ(crc32c(as_bytes(rising)), 0x46dd794eu);
  EXPECT_EQ(crc32c(as_bytes(falling)), 0x113fdb5cu);
  EXPECT_EQ(crc32c({}), 0u);
}

nlohmann::json events_of(const std::filesystem::path& path) {
  const std::string command = "python3 tests/train/read_events.py '" + path.string() + "' 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char block[4096];
  while (const size_t count = std::fread(block, 1, sizeof block, pipe)) text.append(block, count);
  EXPECT_EQ(::pclose(pipe), 0) << text;
  return nlohmann::json::parse(text, nullptr, false);
}

TEST(TensorBoard, AnIndependentReaderFindsTheNumbers) {
  const TempFolder folder;
  std::filesystem::path path;
  {
    TensorBoardWriter writer(folder.path(), 0);
    path = writer.path();
    writer.write(step_at(4));
    writer.write(eval_at(300));
    EvalReport regression = eval_at(5000000000);
    regression.accuracy = std::nan("");
    writer.write(regression);
  }
  EXPECT_NE(path.filename().string().find("tfevents"), std::string::npos);
  // The first record of every event file is 24 bytes long: 8 bytes of length, their checksum.
  EXPECT_EQ(text_of(path).substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  const nlohmann::json events = events_of(path);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["file_version"], "brain.Event:2");
  EXPECT_GT(events[0]["wall_time"], 1.7e9);
  EXPECT_EQ(events[1]["step"], 4);
  EXPECT_EQ(events[1]["train/loss"], 0.5);
  EXPECT_EQ(events[1]["train/grad_norm"], 0.0);  // below the smallest f32
  EXPECT_EQ(events[1]["train/lr"].get<float>(), 3e-4f);
  EXPECT_EQ(events[1]["train/samples_per_s"], 1e6);
  EXPECT_EQ(events[1]["train/step_ms"], 12.5);
  EXPECT_EQ(events[2]["step"], 300);
  EXPECT_EQ(events[2]["eval/loss"], 0.25);
  EXPECT_EQ(events[2]["eval/accuracy"].get<float>(), 0.9f);
  EXPECT_EQ(events[3]["step"], 5000000000);
  EXPECT_FALSE(events[3].contains("eval/accuracy"));
}

TEST(TensorBoard, AGpuIsDrawnAsFarAsItIsKnown) {
  const TempFolder folder;
  GpuReading reading;
  reading.joules = 2048.5;
  reading.memory_bytes = int64_t{30} << 30;
  StepReport report = step_at(4);
  report.gpu = &reading;
  std::filesystem::path path;
  {
    TensorBoardWriter writer(folder.path(), 0);
    path = writer.path();
    writer.write(report);
  }
  const nlohmann::json events = events_of(path);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1]["gpu/joules"], 2048.5);
  EXPECT_EQ(events[1]["gpu/memory_bytes"], 0x1p30 * 30);
  for (const char* tag : {"gpu/watts", "gpu/sm_mhz", "gpu/celsius"})
    EXPECT_FALSE(events[1].contains(tag)) << tag;
}

TEST(TensorBoard, WhatCannotBeWrittenIsSaid) {
  EXPECT_NE(user_error([] { TensorBoardWriter("/dev/null/folder", 0); }).find("cannot make"),
            std::string::npos);
}

TEST(TensorBoard, ResumedRunOpensASession) {
  const TempFolder folder;
  std::filesystem::path path;
  {
    const TensorBoardWriter first(folder / "new/folder", 0);
    const TensorBoardWriter second(folder / "new/folder", 41);
    path = second.path();
    EXPECT_NE(first.path(), second.path());
  }
  const nlohmann::json events = events_of(path);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["file_version"], "brain.Event:2");
  EXPECT_EQ(events[1]["session"], 1);
  EXPECT_EQ(events[1]["step"], 42);
}

}  // namespace
}  // namespace ridge
