// Captured work: what it holds, in which order it runs, and how a capture fails.
#include "ridge/backend/cuda/driver/captured_work.h"

#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/module.h"
#include "ridge/backend/cuda/driver/staging.h"
#include "tests/backend/cuda/fake_driver_test.h"

namespace ridge::cuda {
namespace {

constexpr uint32_t kCount = 16;
constexpr size_t kBytes = kCount * sizeof(float);

/// Two buffers in device memory, one in host memory, and kernels over them.
struct Bench {
  explicit Bench(const DeviceRef& gpu)
      : kernels(gpu),
        arena(gpu, 2 * 256),
        host(gpu, kBytes),
        main(gpu),
        side(gpu),
        forked(gpu),
        joined(gpu) {}

  void queue_add(Stream& stream, size_t buffer, float value) {
    kernels.add(stream, arena.at(buffer * 256, kBytes), value, kCount);
  }
  void queue_double(Stream& stream, size_t buffer) {
    kernels.double_all(stream, arena.at(buffer * 256, kBytes), kCount);
  }
  /// Both buffers become (1 + 2) * 2 and, on a stream of its own, 0 + 5; then the second goes
  /// over the first where `joins`.
  void queue_all(bool joins = true) {
    main.fill(arena.at(0, 512), 0, 512);
    main.record(forked);
    side.wait(forked);
    queue_add(side, 1, 5);
    side.record(joined);
    queue_add(main, 0, 1);
    queue_add(main, 0, 2);
    queue_double(main, 0);
    if (joins) main.wait(joined);
    queue_add(main, 1, 0.5F);
  }
  std::pair<float, float> read() {
    const auto first_of = [&](size_t buffer) {
      main.copy_to_host(host.bytes().data(), arena.at(buffer * 256, kBytes), kBytes);
      main.synchronize();
      return *reinterpret_cast<float*>(host.bytes().data());
    };
    const float first = first_of(0);
    return {first, first_of(1)};
  }

  TestKernels kernels;
  Arena arena;
  PinnedMemory host;
  Stream main, side;
  Event forked, joined;
};

class CudaGraph : public FakeDriverTest {
 protected:
  CudaGraph() { register_kernels(fake_); }
};

TEST_F(CudaGraph, ReplayIsWhatWasQueued) {
  Bench bench(device());
  bench.queue_all();
  const auto eager = bench.read();
  EXPECT_EQ(eager, (std::pair{6.F, 5.5F}));
  bench.main.fill(bench.arena.at(0, 512), 9, 512);
  bench.main.synchronize();
  const CapturedWork work(bench.main, [&] { bench.queue_all(); });
  EXPECT_EQ(work.nodes(), 6u);
  EXPECT_NE(bench.read(), eager);  // nothing has run
  for (uint64_t seed = 0; seed < 50; ++seed) {
    fake_.set_schedule(seed == 0 ? Schedule::kAtLast : Schedule::kRandom, seed);
    bench.main.fill(bench.arena.at(0, 512), 9, 512);
    work.launch(bench.main);
    EXPECT_EQ(bench.read(), eager);
  }
}

TEST_F(CudaGraph, WorkThatIsNotJoinedIsAnError) {
  Bench bench(device());
  const auto error = error_of([&] { CapturedWork(bench.main, [&] { bench.queue_all(false); }); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->result(), Result::kCaptureUnjoined);
  EXPECT_EQ(error->call(), "cuStreamEndCapture");
  bench.queue_all();  // both streams take work again
  EXPECT_EQ(bench.read(), (std::pair{6.F, 5.5F}));
}

TEST_F(CudaGraph, WhatIsThrownInsideEndsTheCapture) {
  Bench bench(device());
  EXPECT_THROW(CapturedWork(bench.main,
                            [&] {
                              bench.queue_all();
                              throw UserError("of the body");
                            }),
               UserError);
  EXPECT_EQ(lines({"cuGraphDestroy"}).size(), 1u);
  bench.queue_all();
  EXPECT_EQ(bench.read(), (std::pair{6.F, 5.5F}));
}

TEST_F(CudaGraph, AllocatingOrWaitingInsideIsAnError) {
  const DeviceRef gpu = device();
  Bench bench(gpu);
  const auto captured = [&](auto&& body) {
    const auto error = error_of([&] { CapturedWork(bench.main, body); });
    return error ? error->result() : Result::kSuccess;
  };
  EXPECT_EQ(captured([&] { const Arena arena(gpu, 64); }), Result::kCaptureUnsupported);
  EXPECT_EQ(captured([&] { bench.main.synchronize(); }), Result::kCaptureUnsupported);
  EXPECT_EQ(captured([&] {
              bench.main.record(bench.forked);
              bench.forked.synchronize();
            }),
            Result::kCaptureUnsupported);
  bench.queue_all();
  EXPECT_EQ(bench.read(), (std::pair{6.F, 5.5F}));
}

}  // namespace
}  // namespace ridge::cuda
