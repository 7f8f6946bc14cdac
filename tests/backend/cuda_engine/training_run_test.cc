// Training runs with all that one has on a device, captured and staged, with printed kernels
// and products of a library. A steady step neither waits nor allocates. Where calls fail in turn, a
// run ends with the error of that call, or goes on without what it does not need, and leaves
// nothing.
#include "ridge/train/training_run.h"

#include <algorithm>
#include <random>

#include "tests/backend/cuda/fake_blas/fake_blas.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

/// Samples of zeros, which are right indices too.
class Zeros {
 public:
  explicit Zeros(Backend& gpu) : x_(gpu, kBytes), y_(gpu, kBytes) {
    for (const HostMemory* field : {&x_, &y_}) std::fill_n(field->get(), kBytes, std::byte{});
  }
  data::Batch batch(int64_t samples) const {
    data::Batch made;
    made.fields = {x_.get(), y_.get()};
    made.count = samples;
    return made;
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 16;
  HostMemory x_, y_;
};

class CudaTrainingRun : public SimulatedGpu {
 protected:
  CudaTrainingRun() : blas_(fake_blas()) {
    compiler().makes_empty = true;  // or the long form would compute for hours
  }
  ~CudaTrainingRun() override { compiler().makes_empty = false; }

  void start(size_t workspace_bytes) {
    fake_.reset();
    fake_.set_schedule(Schedule::kAtOnce);
    fake_.set_new_memory(0);  // what kernels that compute nothing leave
    blas_.reset(RIDGE_FAKE_CUDA);
    blas_.set_algorithms({{.workspace_bytes = workspace_bytes}});
  }
  void expect_nothing_left() {
    expect_clean();
    expect_clean(blas_);
  }

  void expect_steady(const TrainConfig& config, Backend& gpu);

  FakeBlas& blas_;
};

std::string call_of(const std::string& line) { return line.substr(0, line.find(' ')); }

// ---- steady steps ----

// In the short form every fifth: of each kind, precision, micro and capture some.
std::vector<TrainConfig> configs() {
  std::vector<TrainConfig> all;
  size_t number = 0;
  for (const char* kind : {"mlp", "gpt", "cnn"})
    for (const Precision precision : {Precision::kF32, Precision::kFp16})
      for (const int64_t micro : {1, 2})
        for (const Capture capture : {Capture::kAuto, Capture::kOff}) {
          if (is_short_scale() && number++ % 5 != 0) continue;
          TrainConfig& config = all.emplace_back(small_config(kind));
          config.train.precision = precision;
          config.train.micro = micro;
          config.train.capture = capture;
        }
  return all;
}

// An entry's recording holds the launches of the run before it, call by call.
void expect_recorded_as_launched(std::vector<std::string> log) {
  // The library alone chooses where it keeps a product.
  for (std::string& line : log)
    if (line.starts_with("cuLaunchKernel cublaslt"))
      line.erase(line.find('('), line.find(", ") - line.find('('));
  const auto next = [&](auto from, const char* call) {
    return std::find_if(from, log.end(), [&](const auto& line) { return call_of(line) == call; });
  };
  auto at = next(log.begin(), "cuStreamBeginCapture_v2");
  ASSERT_NE(at, log.end());
  for (; at != log.end(); at = next(at + 1, "cuStreamBeginCapture_v2")) {
    const auto begin = at + 1, end = next(begin, "cuStreamEndCapture");
    EXPECT_GT(end - begin, 2);
    EXPECT_NE(std::search(log.begin(), at, begin, end), at);
    EXPECT_THAT(*next(end, "cuGraphInstantiateWithFlags"),
                has(fmt::format(" of {} nodes in a row", end - begin)));
  }
}

void CudaTrainingRun::expect_steady(const TrainConfig& config, Backend& gpu) {
  const bool is_recorded = config.train.capture == Capture::kAuto;
  const Task task = open_task(config);
  const Zeros zeros(gpu);
  TrainingRun run(task, config, gpu, program_options(config, task));
  const auto take_steps = [&](int64_t from, int64_t to) {
    fake_.clear_log();
    for (int64_t step = from; step < to; ++step)
      run.run_step(zeros.batch(config.train.batch), step, 100);
  };
  const auto count = [&](const char* call) { return lines({call}).size(); };
  take_steps(0, 2);
  const size_t copies = count("cuMemcpyHtoDAsync_v2"), launches = count("cuLaunchKernel");
  if (is_recorded)
    expect_recorded_as_launched(lines({"cuLaunchKernel",
                                       "cuMemcpyDtoDAsync_v2",
                                       "cuMemsetD8Async",
                                       "cuStreamBeginCapture_v2",
                                       "cuStreamEndCapture",
                                       "cuGraphInstantiateWithFlags"}));
  constexpr size_t kSteps = 64;
  take_steps(2, 2 + kSteps);
  const std::vector<std::string> allowed = {"cuMemcpyHtoDAsync_v2",
                                            "cuMemcpyDtoDAsync_v2",
                                            "cuMemcpyDtoHAsync_v2",
                                            "cuMemsetD8Async",
                                            "cuEventRecord",
                                            "cuEventSynchronize",
                                            "cuStreamWaitEvent",
                                            "cuStreamSynchronize",
                                            "cuLaunchKernel",
                                            "cuGraphLaunch"};
  EXPECT_EQ(lines(allowed).size(), fake_.log().size());
  for (const std::string& line : fake_.log()) EXPECT_THAT(line, lacks("pageable"));
  const auto micro = static_cast<size_t>(config.train.micro);
  const size_t runs = kSteps * (micro == 1 ? 1 : micro + 1);
  EXPECT_EQ(count("cuGraphLaunch"), is_recorded ? runs : 0);
  EXPECT_EQ(count("cuLaunchKernel"), is_recorded ? 0 : kSteps / 2 * launches);
  EXPECT_EQ(count("cuMemcpyHtoDAsync_v2"), kSteps / 2 * copies);
  // The host waits for the copies of the run before; once in 63 steps for how many were skipped.
  const size_t asked = config.train.precision == Precision::kFp16 ? 1 : 0;
  EXPECT_EQ(count("cuEventSynchronize"), runs);
  EXPECT_EQ(count("cuStreamSynchronize"), 2 * asked);
  EXPECT_EQ(count("cuMemcpyDtoHAsync_v2") > 0, asked > 0);
  for (const char* call : {"cuEventRecord", "cuStreamWaitEvent"})
    EXPECT_EQ(count(call), 2 * runs + asked) << call;
  // A result that is read is waited for once, for either stream.
  take_steps(2 + kSteps, 3 + kSteps);
  run.last_result();
  EXPECT_EQ(count("cuStreamSynchronize"), 2u);
  EXPECT_EQ(lines(allowed).size(), fake_.log().size());
}

TEST_F(CudaTrainingRun, ASteadyStepNeitherWaitsNorAllocates) {
  for (const bool has_library : {false, true})
    for (const TrainConfig& config : configs()) {
      SCOPED_TRACE(fmt::format("{} {} micro {} capture {} library {}",
                               name_of(config.model.kind),
                               name_of(config.train.precision),
                               config.train.micro,
                               name_of(config.train.capture),
                               has_library));
      start(4112);
      expect_steady(config, *(has_library ? make_backend_with_blas() : make_backend_cuda()));
      expect_nothing_left();
      if (HasFailure()) return;
    }
}

// ---- failures ----

class CudaTrainingFails : public CudaTrainingRun {
 protected:
  CudaTrainingFails() : config_(small_config("gpt")) {
    config_.train.precision = Precision::kFp16;
    config_.train.micro = 2;
    task_.emplace(open_task(config_));
  }

  /// Each entry runs as it is, is recorded, and runs as a recording. `calls` of the driver up to
  /// where all is read.
  void run(int64_t* calls = nullptr) {
    const auto gpu = make_backend_with_blas();
    const Zeros zeros(*gpu);
    TrainingRun run(*task_, config_, *gpu, program_options(config_, *task_));
    for (int64_t step = 0; step < 3; ++step) {
      run.run_step(zeros.batch(16), step, 10);
      if (step == 1) run.last_result();
      StepResult sums;
      run.evaluate(zeros.batch(task_->sizes.eval.at(0).samples), sums);
    }
    run.state_hash();
    if (calls != nullptr) *calls = fake_.calls();
  }
  /// How many calls fail, if not all of them do.
  static size_t few() { return is_short_scale() ? 5 : 60; }
  /// Numbers below `count`, one in each of few() parts. In the long form it is one in each of
  /// kMost, which takes minutes, and another one in each round: as many rounds as a part is long
  /// take all.
  static std::vector<size_t> picks(size_t count) {
    std::vector<size_t> all;
    std::mt19937_64 random(10);
    const size_t part =
        std::max<size_t>(1, is_full_scale() ? (count + kMost - 1) / kMost : count / few());
    RecordProperty("rounds", static_cast<int>(part));
    for (size_t first = 0; first < count; first += part)
      all.push_back(
          std::min(count - 1, first + (is_full_scale() ? test_round() : random()) % part));
    return all;
  }

  static constexpr size_t kMost = 1300;
  TrainConfig config_;
  std::optional<Task> task_;
};

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
  start(256);
  run(&calls);
  expect_nothing_left();
  const std::vector<std::string> clean = fake_.log();
  start(256);
  run();
  ASSERT_EQ(calls_of(fake_.log()), calls_of(clean)) << "the n-th call is not always the same";
  EXPECT_EQ(lines({"cuStreamBeginCapture_v2"}).size(), 3u);
  const std::vector<bool> is_recording = records(clean);
  size_t told = 0;
  for (const int code : {2, 719})
    for (const size_t n : picks(clean.size())) {
      const std::string call = call_of(clean[n]);
      SCOPED_TRACE(fmt::format("call {} ({}) fails with {}", n + 1, clean[n], code));
      start(256);
      fake_.fail("", static_cast<int64_t>(n) + 1, code);
      const std::string message = user_error([&] { run(); });
      told += message == "no error" ? 0 : 1;
      const bool may_go_on = static_cast<int64_t>(n) >= calls || destroys(call) ||
                             call == "cuCtxSetCurrent" || call == "cuCtxSynchronize" ||
                             (is_scratch(clean, n) && code == 2) || (is_recording[n] && code == 2);
      if (!may_go_on) {
        EXPECT_NE(message, "no error");
        // The library reports failures of its own calls of the driver.
        if (!is_recording[n]) {
          EXPECT_THAT(message, testing::AnyOf(has(call), has("cuBLASLt")));
        }
      }
      expect_nothing_left();
      if (HasFailure()) return;
    }
  EXPECT_GT(told, few() / 2);
}

TEST_F(CudaTrainingFails, EachCallOfTheLibraryOfProducts) {
  start(256);
  run();
  const std::vector<std::string> clean = blas_.log();
  ASSERT_GT(clean.size(), 100u);
  size_t told = 0;
  constexpr int kExecutionFailed = 13;
  for (const size_t n : picks(clean.size())) {
    const std::string call = call_of(clean[n]);
    SCOPED_TRACE(fmt::format("call {} ({}) fails", n + 1, clean[n]));
    start(256);
    blas_.fail("", static_cast<int64_t>(n) + 1, kExecutionFailed);
    const std::string message = user_error([&] { run(); });
    told += message == "no error" ? 0 : 1;
    // In a recording its launches go on one by one; shapes that an algorithm may lack are none.
    const bool may_go_on =
        destroys(call) || launches(clean, n) || call == "cublasLtMatmulAlgoConfigGetAttribute";
    if (!may_go_on) {
      EXPECT_THAT(message, has(call));
    }
    expect_nothing_left();
    if (HasFailure()) return;
  }
  EXPECT_GT(told, few() / 6);
}

}  // namespace
}  // namespace ridge::test
