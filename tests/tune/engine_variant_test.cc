// A variant does more in a step than compute: it reports the step, as a run would, into files that
// nobody finds, and says when a step fails.
#include "ridge/tune/engine/engine_variant.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ridge/proof/metered_runner.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

std::string config(const std::string& more) {
  return "[model]\nkind = 'mlp'\nhidden = [8]\noutputs = 3\n[data]\nkind = 'random'\nshape = [4]\n"
         "samples = 64\nclasses = 3\n" +
         more;
}

// Bytes that this process has written to files which have no name any more.
int64_t nameless_bytes() {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (target.find("ridge-trial-") == std::string::npos || !target.ends_with("(deleted)"))
      continue;
    bytes += static_cast<int64_t>(fs::file_size(entry.path()));
  }
  return bytes;
}

class EngineVariantFiles : public testing::Test {
 protected:
  EngineVariantFiles() { setenv("TMPDIR", folder_.path().c_str(), 1); }
  ~EngineVariantFiles() override { unsetenv("TMPDIR"); }
  test::TempFolder folder_;
};

TEST_F(EngineVariantFiles, StepsAreToldToFilesWithoutAName) {
  const std::string out = (folder_ / "run").string();
  EngineVariant variant(config("[train]\nbatch = 16\nsteps = 9000\nout = '" + out + "'\n"), 0);
  EXPECT_TRUE(folder_.names().empty());
  variant.run(2000);
  EXPECT_GT(nameless_bytes(), 65536);  // a buffer of lines at least has left it
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(EngineVariantFiles, WithoutAFolderNothingIsWritten) {
  EngineVariant variant(config("[train]\nbatch = 16\nsteps = 9000\n"), 0);
  variant.run(2000);
  EXPECT_EQ(nameless_bytes(), 0);
}

TEST_F(EngineVariantFiles, RareMetricsWriteLess) {
  const std::string train = "[train]\nbatch = 16\nsteps = 900000\neval_every = 900000\nout = 'x'\n";
  EngineVariant often(config(train), 0);
  often.run(4000, StepKind::kReport);
  const int64_t all = nameless_bytes();
  EngineVariant rare(config(train + "[metrics]\nevery = 1000\n"), 0);
  rare.run(4000, StepKind::kReport);
  EXPECT_GT(all, 65536);
  EXPECT_LT(nameless_bytes() - all, all / 10);
}

TEST_F(EngineVariantFiles, AFolderThatCannotBeMadeIsSaid) {
  setenv("TMPDIR", "/proc", 1);
  EXPECT_NE(test::user_error([] {
              EngineVariant(config("[train]\nbatch = 16\nsteps = 9\nout = 'x'\n"), 0);
            }).find("TMPDIR"),
            std::string::npos);
}

TEST(EngineVariant, AReportLeavesTheStateAlone) {
  EngineVariant variant(config("[train]\nbatch = 16\nsteps = 100\n"), 0);
  variant.run(3);
  const std::string hash = variant.state_hash();
  EXPECT_GT(variant.run(50, StepKind::kReport).seconds, 0.0);
  EXPECT_EQ(variant.state_hash(), hash);
}

// The first step that was not finite is named, whenever that is noticed.
TEST(EngineVariant, AStepThatIsNotFiniteIsNamed) {
  const std::string wild =
      "[optimizer]\nkind = 'sgd'\nlr = 900\nclip = 0\n[train]\nbatch = 16\nsteps = 9000\n";
  std::string first;
  for (const char* every : {"1", "1000"}) {
    const std::string message = test::user_error([&] {
      EngineVariant variant(config(wild + "[metrics]\nevery = " + every + "\n"), 0);
      variant.run(300);
    });
    EXPECT_NE(message.find("is not finite"), std::string::npos) << message;
    if (first.empty()) first = message;
    EXPECT_EQ(message, first);
  }
}

// Moves a counter that the test made; `total`, in microjoules, is that of all runners.
class CountingRunner final : public Runner {
 public:
  CountingRunner(fs::path counter, int64_t& total, int64_t per_step)
      : counter_(std::move(counter)), total_(total), per_step_(per_step) {}
  Block run(int64_t steps) override {
    total_ += steps * per_step_;
    std::ofstream(counter_) << total_ % 1000000 << "\n";  // it begins anew at a joule
    return {.seconds = 0.1};
  }

 private:
  fs::path counter_;
  int64_t& total_;
  int64_t per_step_;
};

TEST(MeteredRunner, JoulesGoToWhoRan) {
  const test::TempFolder folder;
  const fs::path zone = folder / "intel-rapl:0";
  fs::create_directories(zone);
  std::ofstream(zone / "name") << "package-0\n";
  std::ofstream(zone / "max_energy_range_uj") << "1000000\n";
  std::ofstream(zone / "energy_uj") << "0\n";
  EnergyMeter meter(folder.path().string());
  ASSERT_EQ(meter.problem(), "");
  int64_t total = 0;
  CountingRunner hungry(zone / "energy_uj", total, 3000), modest(zone / "energy_uj", total, 1000);
  MeteredRunner a(hungry, meter), b(modest, meter);
  EXPECT_EQ(a.joules_per_step(), std::nullopt);
  for (int i = 0; i < 40; ++i) {
    a.run(50);
    b.run(70);
    modest.run(100);  // nobody's
  }
  EXPECT_NEAR(a.joules_per_step().value(), 0.003, 1e-12);
  EXPECT_NEAR(b.joules_per_step().value(), 0.001, 1e-12);
  EnergyMeter none((folder / "none").string());
  MeteredRunner unknown(modest, none);
  unknown.run(5);
  EXPECT_EQ(unknown.joules_per_step(), std::nullopt);
}

}  // namespace
}  // namespace ridge
