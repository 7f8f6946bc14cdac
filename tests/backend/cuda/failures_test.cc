// A small training loop over all that the layer has: whatever call fails, the end is one clean
// error, and nothing is left.
#include <algorithm>
#include <optional>

#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/captured_work.h"
#include "ridge/backend/cuda/driver/module.h"
#include "ridge/backend/cuda/driver/staging.h"
#include "tests/backend/cuda/fake_driver_test.h"

namespace ridge::cuda {
namespace {

constexpr uint32_t kCount = 64;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr size_t kPlace = 256;

/// Inputs go by a ring and a stream of their own into one of two places, in turns; the step copies
/// the input, adds 1, doubles it and adds it to a sum: by its kernels, or by a captured graph.
class Loop {
 public:
  explicit Loop(const DeviceRef& gpu)
      : kernels_(gpu, 64 << 10),
        arena_(gpu, 4 * kPlace),
        ring_(gpu, 3, kBytes),
        result_(gpu, kBytes),
        work_(gpu),
        copies_(gpu),
        start_(gpu, Event::Timing::kOn),
        end_(gpu, Event::Timing::kOn) {
    work_.fill(arena_.at(3 * kPlace, kBytes), 0, kBytes);
    for (int i = 0; i < 2; ++i) {
      filled_.emplace_back(gpu);
      read_.emplace_back(gpu);
      captured_.emplace_back(work_, [&] { queue_step(static_cast<size_t>(i)); });
    }
  }

  void step(size_t number) {
    const size_t place = number % 2;
    const PinnedRing::Slot slot = ring_.acquire();
    std::fill_n(
        reinterpret_cast<float*>(slot.bytes.data()), kCount, static_cast<float>(number + 1));
    copies_.wait(read_[place]);
    copies_.copy_to_device(arena_.at(place * kPlace, kBytes), slot.bytes.data(), kBytes);
    ring_.release(slot, copies_);
    copies_.record(filled_[place]);
    work_.wait(filled_[place]);
    work_.record(start_);
    if (number % 3 == 2)
      queue_step(place);
    else
      captured_[place].launch(work_);
    work_.record(end_);
    work_.record(read_[place]);
  }

  /// The sum of all steps.
  float read() {
    work_.copy_to_host(result_.bytes().data(), arena_.at(3 * kPlace, kBytes), kBytes);
    work_.synchronize();
    EXPECT_GT(end_.seconds_since(start_), 0);
    return reinterpret_cast<const float*>(result_.bytes().data())[kCount - 1];
  }

 private:
  void queue_step(size_t place) {
    const DevicePointer to = arena_.at(2 * kPlace, kBytes);
    work_.copy(to, arena_.at(place * kPlace, kBytes), kBytes);
    kernels_.add(work_, to, 1, kCount, {.block_x = kCount, .shared_bytes = 64 << 10});
    kernels_.double_all(work_, to, kCount, {.block_x = kCount});
    kernels_.accumulate(work_, arena_.at(3 * kPlace, kBytes), to, kCount);
  }

  TestKernels kernels_;
  Arena arena_;
  PinnedRing ring_;
  PinnedMemory result_;
  Stream work_, copies_;
  Event start_, end_;
  std::vector<Event> filled_, read_;
  std::vector<CapturedWork> captured_;
};

constexpr size_t kSteps = 7;
/// The sum of 2 * (i + 1 + 1) over the steps.
constexpr float expected(size_t steps) {
  return static_cast<float>(steps * (steps - 1) + 4 * steps);
}

class CudaFailures : public FakeDriverTest {
 protected:
  /// From the driver on to the end; `calls` at the end of the steps.
  float run(int64_t* calls = nullptr) {
    const DeviceRef gpu = device();
    Loop loop(gpu);
    for (size_t i = 0; i < kSteps; ++i) loop.step(i);
    const float value = loop.read();
    gpu->memory_use();
    if (calls != nullptr) *calls = fake_.calls();
    return value;
  }
  void start(Schedule schedule, uint64_t seed = 0) {
    fake_.reset();
    register_kernels(fake_);
    fake_.set_schedule(schedule, seed);
  }
};

TEST_F(CudaFailures, TheLoopIsRightInAnyOrderThatItAllows) {
  for (uint64_t seed = 0; seed <= 101; ++seed) {
    start(seed == 0 ? Schedule::kAtOnce : seed == 1 ? Schedule::kAtLast : Schedule::kRandom, seed);
    ASSERT_EQ(run(), expected(kSteps)) << seed;
    expect_clean();
  }
}

TEST_F(CudaFailures, EachCallMayFail) {
  start(Schedule::kAtLast);
  int64_t calls_of_steps = 0;
  EXPECT_EQ(run(&calls_of_steps), expected(kSteps));
  const std::vector<std::string> clean = fake_.log();
  ASSERT_GT(clean.size(), 150u);
  ASSERT_EQ(static_cast<int64_t>(clean.size()), fake_.calls());
  for (const int code : {2, 999, 719}) {
    for (size_t n = 0; n < clean.size(); ++n) {
      const std::string call = clean[n].substr(0, clean[n].find(' '));
      SCOPED_TRACE(fmt::format("call {} ({}) fails with {}", n + 1, clean[n], code));
      start(Schedule::kAtLast);
      fake_.fail("", static_cast<int64_t>(n) + 1, code);
      const std::optional<CudaError> error = error_of([&] { run(); });
      // A call that only destroys cannot report an error; a lost device shows at the next call.
      if (static_cast<int64_t>(n) >= calls_of_steps || (destroys(call) && code != 719)) {
        EXPECT_FALSE(error) << error->what();
      } else if (!destroys(call) && call != "cuCtxSetCurrent") {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->result(), Result{code});
        EXPECT_EQ(error->call(), call);
      }
      expect_clean();
      if (HasFailure()) return;
    }
  }
}

// The call that queues it succeeds; a later one, whichever is the first to look, says so.
TEST_F(CudaFailures, WorkThatFailsOnTheDeviceEndsCleanly) {
  for (int64_t nth = 1; nth <= 2 * static_cast<int64_t>(kSteps); ++nth) {
    SCOPED_TRACE(nth);
    start(Schedule::kAtLast);
    int64_t launches = 0;
    fake_.on_kernel("double_all",
                    [&](const test::FakeLaunch&) { return ++launches == nth ? 716 : 0; });
    if (const std::optional<CudaError> error = error_of([&] { run(); })) {
      EXPECT_EQ(error->trouble(), Trouble::kDeviceLost);
      EXPECT_EQ(error->result(), Result::kMisalignedAddress);
    } else {
      EXPECT_LT(launches, nth);
    }
    expect_clean();
  }
}

}  // namespace
}  // namespace ridge::cuda
