// Calibrations: kept, found again, and measured anew when what is kept is of no use.
#include "ridge/cli/calibrate.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ridge/base/cpu/parallel.h"
#include "tests/cli/run_words.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::TempFolder;

// Counts how often it is asked.
struct Meter {
  int asked = 0;
  Calibration operator()() {
    ++asked;
    Calibration result;
    result.flops_per_s = {{DType::kF32, 1.25e11 * asked}, {DType::kF64, 1.0 / 3}};
    result.copy_bytes_per_s = 2e10;
    result.launch_s = 3e-8;
    return result;
  }
};

KeptCalibration ask(const TempFolder& folder, Meter& meter, bool fresh = false) {
  return kept_calibration(folder / "a/b", "this machine", fresh, [&] { return meter(); });
}

TEST(Calibrate, MeasuredOnceAndKept) {
  const TempFolder folder;
  Meter meter;
  const KeptCalibration first = ask(folder, meter), second = ask(folder, meter);
  EXPECT_EQ(meter.asked, 1);
  EXPECT_FALSE(first.from_cache);
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.values.flops_per_s, first.values.flops_per_s);  // to the last bit
  EXPECT_EQ(second.values.copy_bytes_per_s, 2e10);
  EXPECT_EQ(second.values.launch_s, 3e-8);
  EXPECT_EQ(second.measured_at, first.measured_at);
  EXPECT_EQ(first.note + second.note, "");
  EXPECT_EQ(ask(folder, meter, true).values.flops_per_s.at(DType::kF32), 2.5e11);
  EXPECT_EQ(ask(folder, meter).values.flops_per_s.at(DType::kF32), 2.5e11);
  const auto other =
      kept_calibration(folder / "a/b", "another machine", false, [&] { return meter(); });
  EXPECT_FALSE(other.from_cache);
}

// Transfers and graph nodes are kept where there are such, and left out where there are none.
TEST(Calibrate, NumbersOfADeviceAreKept) {
  const TempFolder folder;
  int asked = 0;
  const auto measure = [&] {
    ++asked;
    Calibration values;
    values.flops_per_s[DType::kBF16] = 7.5e14;
    values.copy_bytes_per_s = 4e12;
    values.launch_s = 2e-6;
    double next = 1e9;
    for (const DeviceNumber& each : device_numbers(values)) *each.value = next += 1e9;
    return values;
  };
  kept_calibration(folder.path(), "a GPU", false, measure);
  KeptCalibration kept = kept_calibration(folder.path(), "a GPU", false, measure);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(kept.values.pinned.to_device, 2e9);
  EXPECT_EQ(kept.values.pinned.to_host, 3e9);
  EXPECT_EQ(kept.values.pageable.to_device, 4e9);
  EXPECT_EQ(kept.values.pageable.to_host, 5e9);
  EXPECT_EQ(kept.values.graph_node_s, 6e9);
  Meter meter;
  const KeptCalibration host =
      kept_calibration(folder.path(), "no GPU", false, [&] { return meter(); });
  std::ifstream in(host.file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(text.find("pinned"), std::string::npos);
  EXPECT_EQ(text.find("graph_node"), std::string::npos);
}

TEST(Calibrate, DamageIsMeasuredAnewAndSaid) {
  const TempFolder folder;
  Meter meter;
  const auto file = ask(folder, meter).file;
  std::ifstream in(file);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::vector<std::string> damaged = {"",
                                            "garbage",
                                            good.substr(0, good.size() / 2),
                                            replaced("this machine", "that machine"),
                                            replaced("f32", "f33"),
                                            replaced("20000000000.0", "-1"),
                                            replaced("20000000000.0", "\"fast\""),
                                            replaced("\"launch_s\"", "\"launched\""),
                                            replaced("cache/1", "cache/2"),
                                            std::string(1 << 20, ' ')};
  for (const std::string& text : damaged) {
    std::ofstream(file) << text;
    const int before = meter.asked;
    const KeptCalibration kept = ask(folder, meter);
    EXPECT_EQ(meter.asked, before + 1) << text.substr(0, 300);
    EXPECT_NE(kept.note.find("of no use"), std::string::npos) << kept.note;
    EXPECT_TRUE(ask(folder, meter).from_cache);  // repaired
  }
}

TEST(Calibrate, WithoutAPlaceItStillMeasures) {
  Meter meter;
  const KeptCalibration none = kept_calibration({}, "m", false, [&] { return meter(); });
  EXPECT_NE(none.note.find("nothing is kept"), std::string::npos);
  const KeptCalibration refused =
      kept_calibration("/dev/null/ridge", "m", false, [&] { return meter(); });
  EXPECT_NE(refused.note.find("not kept"), std::string::npos);
  EXPECT_TRUE(refused.file.empty());
  EXPECT_EQ(meter.asked, 2);
}

// Sets variables of the environment for one test.
class Variable {
 public:
  Variable(std::string name, const char* value) : name_(std::move(name)) {
    const char* before = std::getenv(name_.c_str());
    had_ = before != nullptr;
    if (had_) before_ = before;
    value != nullptr ? ::setenv(name_.c_str(), value, 1) : ::unsetenv(name_.c_str());
  }
  ~Variable() { had_ ? ::setenv(name_.c_str(), before_.c_str(), 1) : ::unsetenv(name_.c_str()); }

 private:
  std::string name_, before_;
  bool had_;
};

TEST(Calibrate, FolderFollowsTheEnvironment) {
  const Variable home("HOME", "/home/someone");
  {
    const Variable cache("XDG_CACHE_HOME", "/cache");
    EXPECT_EQ(cache_folder(), "/cache/ridge");
  }
  {
    const Variable cache("XDG_CACHE_HOME", "relative");
    EXPECT_EQ(cache_folder(), "/home/someone/.cache/ridge");
  }
  const Variable cache("XDG_CACHE_HOME", nullptr), none("HOME", nullptr);
  EXPECT_EQ(cache_folder(), "");
}

TEST(Calibrate, VerbMeasuresThisMachine) {
  const TempFolder folder;
  const Variable cache("XDG_CACHE_HOME", folder.path().c_str());
  const int threads = num_threads();
  const test::Outcome first = test::run({"calibrate", "--threads", "1", "--json"});
  EXPECT_EQ(first.code, 0);
  EXPECT_EQ(first.err, "");
  const auto report = nlohmann::json::parse(first.out);
  EXPECT_EQ(report["schema"], "ridge.calibrate/1");
  EXPECT_EQ(report["threads"], 1);
  EXPECT_FALSE(report["from_cache"]);
  for (const char* dtype : {"f32", "f64"}) EXPECT_GT(report["flops_per_s"][dtype], 1e8);
  EXPECT_GT(report["copy_bytes_per_s"], 1e7);
  EXPECT_GT(report["launch_s"], 0);
  EXPECT_LT(report["launch_s"], 1e-3);
  const auto again =
      nlohmann::json::parse(test::run({"calibrate", "--threads", "1", "--json"}).out);
  EXPECT_TRUE(again["from_cache"]);
  EXPECT_EQ(again["flops_per_s"], report["flops_per_s"]);
  EXPECT_NE(test::run({"calibrate", "--threads", "1"}).out.find("FLOP/s"), std::string::npos);
  EXPECT_EQ(test::run({"calibrate", "--threads", "-1"}).code, 2);
  EXPECT_EQ(test::run({"calibrate", "--device", "tpu"}).code, 2);
  set_num_threads(threads);
}

}  // namespace
}  // namespace ridge
