// A training run with all that one has on a device, captured and staged, with printed kernels and
// products of a library, whose calls fail in turn: it ends with the error of that call, or goes on
// without what it does not need, and leaves nothing.
#include <random>

#include "ridge/train/session.h"
#include "tests/backend/cuda/fake_blas/fake_blas.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/support/scale.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

constexpr size_t kBatchBytes = size_t{1} << 14;

class CudaTrainingFails : public SimulatedGpu {
 protected:
  CudaTrainingFails() : config_(small_config("gpt")), blas_(fake_blas()) {
    compiler().makes_empty = true;  // or the long form would compute for hours
    config_.train.precision = "fp16";
    config_.train.micro = 2;
    task_.emplace(open_task(config_));
  }
  ~CudaTrainingFails() override { compiler().makes_empty = false; }

  void start() {
    fake_.reset();
    fake_.set_schedule(Schedule::kAtOnce);
    blas_.reset(RIDGE_FAKE_CUDA);
    blas_.set_algorithms({{.workspace_bytes = 256}});
  }
  /// Each entry runs as it is, is recorded, and runs as a recording. `calls` of the driver up to
  /// where all is read.
  void run(int64_t* calls = nullptr) {
    const auto gpu = make_backend_with_blas();
    const HostMemory x(*gpu, kBatchBytes), y(*gpu, kBatchBytes);
    data::Batch batch;
    batch.fields = {x.get(), y.get()};
    for (const HostMemory* field : {&x, &y}) std::fill_n(field->get(), kBatchBytes, std::byte{});
    Session session(*task_, config_, *gpu, program_options(config_, *task_));
    for (int64_t step = 0; step < 3; ++step) {
      batch.count = 16;
      session.run_step(batch, step, 10);
      if (step == 1) session.last_result();
      StepResult sums;
      batch.count = task_->sizes.eval.at(0).samples;
      session.evaluate(batch, sums);
    }
    session.state_hash();
    if (calls != nullptr) *calls = fake_.calls();
  }
  /// What the run said when it failed; empty: it did not.
  std::string run_failing() {
    try {
      run();
    } catch (const UserError& error) {
      return error.what();
    }
    return {};
  }
  void expect_nothing_left() {
    expect_clean();
    EXPECT_EQ(blas_.live(), std::vector<std::string>{});
    EXPECT_EQ(blas_.faults(), std::vector<std::string>{});
  }
  /// How many calls fail, if not all of them do.
  static size_t few() { return is_short_scale() ? 12 : 60; }
  /// Numbers below `count`: all of them in the long form, else one in each of few() parts.
  static std::vector<size_t> picks(size_t count) {
    std::vector<size_t> all;
    std::mt19937_64 random(10);
    const size_t part = is_full_scale() ? 1 : std::max<size_t>(1, count / few());
    for (size_t first = 0; first < count; first += part)
      all.push_back(std::min(count - 1, first + random() % part));
    return all;
  }

  TrainConfig config_;
  std::optional<Task> task_;
  FakeBlas& blas_;
};

std::string call_of(const std::string& line) { return line.substr(0, line.find(' ')); }

// Whether call n of the library multiplies, or says for that where a bias and GELU's operand lie.
bool launches(const std::vector<std::string>& calls, size_t n) {
  for (int places = 0; places < 2 && call_of(calls[n]) == "cublasLtMatmulDescSetAttribute";
       ++places)
    ++n;
  return call_of(calls[n]) == "cublasLtMatmul";
}

// Whether call n of the driver takes memory only for a kernel to run on once, with a stream of its
// own: what a run can do without.
bool is_scratch(const std::vector<std::string>& calls, size_t n) {
  return call_of(calls[n]) == "cuMemAlloc_v2" && n + 1 < calls.size() &&
         call_of(calls[n + 1]) == "cuStreamCreate";
}

std::vector<std::string> calls_of(const std::vector<std::string>& log) {
  std::vector<std::string> calls;
  for (const std::string& line : log) calls.push_back(call_of(line));
  return calls;
}

TEST_F(CudaTrainingFails, EachCallOfTheDriver) {
  int64_t calls = 0;
  start();
  run(&calls);
  expect_nothing_left();
  const std::vector<std::string> clean = fake_.log();
  start();
  run();
  ASSERT_EQ(calls_of(fake_.log()), calls_of(clean)) << "the n-th call is not always the same";
  EXPECT_EQ(lines({"cuStreamBeginCapture_v2"}).size(), 3u);
  const std::vector<bool> is_recording = records(clean);
  size_t told = 0;
  for (const int code : {2, 719})
    for (const size_t n : picks(clean.size())) {
      const std::string call = call_of(clean[n]);
      SCOPED_TRACE(fmt::format("call {} ({}) fails with {}", n + 1, clean[n], code));
      start();
      fake_.fail("", static_cast<int64_t>(n) + 1, code);
      const std::string message = run_failing();
      told += message.empty() ? 0 : 1;
      const bool may_go_on = static_cast<int64_t>(n) >= calls || destroys(call) ||
                             call == "cuCtxSetCurrent" || call == "cuCtxSynchronize" ||
                             (is_scratch(clean, n) && code == 2) || (is_recording[n] && code == 2);
      if (!may_go_on) {
        EXPECT_NE(message, "");
        // What the library asked the driver for, the library tells.
        if (!is_recording[n]) {
          EXPECT_TRUE(message.find(call) != std::string::npos ||
                      message.find("cuBLASLt") != std::string::npos)
              << message;
        }
      }
      expect_nothing_left();
      if (HasFailure()) return;
    }
  EXPECT_GT(told, few() / 2);
}

TEST_F(CudaTrainingFails, EachCallOfTheLibraryOfProducts) {
  start();
  run();
  const std::vector<std::string> clean = blas_.log();
  ASSERT_GT(clean.size(), 100u);
  size_t told = 0;
  constexpr int kExecutionFailed = 13;
  for (const size_t n : picks(clean.size())) {
    const std::string call = call_of(clean[n]);
    SCOPED_TRACE(fmt::format("call {} ({}) fails", n + 1, clean[n]));
    start();
    blas_.fail("", static_cast<int64_t>(n) + 1, kExecutionFailed);
    const std::string message = run_failing();
    told += message.empty() ? 0 : 1;
    // In a recording its launches go on one by one; shapes that an algorithm may lack are none.
    const bool may_go_on =
        destroys(call) || launches(clean, n) || call == "cublasLtMatmulAlgoConfigGetAttribute";
    if (!may_go_on) {
      EXPECT_NE(message.find(call), std::string::npos) << message;
    }
    expect_nothing_left();
    if (HasFailure()) return;
  }
  EXPECT_GT(told, few() / 6);
}

}  // namespace
}  // namespace ridge::test
