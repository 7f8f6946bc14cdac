// Streams, events, memory and staging: the order of calls, the data, and what is reused when.
#include <array>
#include <thread>

#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/module.h"
#include "ridge/backend/cuda/driver/staging.h"
#include "tests/backend/cuda/fake_driver_test.h"

namespace ridge::cuda {
namespace {

using Lines = std::vector<std::string>;

class CudaObjects : public FakeDriverTest {};

float* floats(std::span<std::byte> bytes) { return reinterpret_cast<float*>(bytes.data()); }

TEST_F(CudaObjects, CallsComeInOrder) {
  register_kernels(fake_);
  {
    const DeviceRef gpu = device();
    fake_.clear_log();
    const TestKernels kernels(gpu);
    const Arena arena(gpu, 4096);
    const PinnedMemory host(gpu, 64);
    Stream work(gpu), copies(gpu);
    const Event copied(gpu);
    std::fill_n(floats(host.bytes()), 16, 1.5F);
    copies.copy_to_device(arena.at(256, 64), host.bytes().data(), 64);
    copies.record(copied);
    work.wait(copied);
    const DevicePointer to = arena.at(256, 64);
    kernels.add(work, to, 2, 16, {.grid_x = 2, .block_x = 8});
    work.copy(arena.at(512, 64), to, 64);
    work.fill(to, 0, 64);
    work.copy_to_host(host.bytes().data(), arena.at(512, 64), 64);
    work.synchronize();
    for (int i = 0; i < 16; ++i) EXPECT_EQ(floats(host.bytes())[i], 3.5F);
  }
  const Lines expected = {
      "cuModuleLoadDataEx = module1",
      "cuModuleGetFunction module1 add",
      "cuModuleGetFunction module1 double_all",
      "cuModuleGetFunction module1 accumulate",
      "cuMemAlloc_v2 4096 bytes = memory1",
      "cuMemHostAlloc 64 bytes = pinned1",
      "cuStreamCreate = stream1",
      "cuStreamCreate = stream2",
      "cuEventCreate = event1",
      "cuMemcpyHtoDAsync_v2 memory1+256 from pinned1+0, 64 bytes, stream2",
      "cuEventRecord event1 stream2",
      "cuStreamWaitEvent stream1 event1",
      "cuLaunchKernel add <<<2,1,1; 8,1,1; 0>>>(memory1+256, 1073741824, 16) stream1",
      "cuMemcpyDtoDAsync_v2 memory1+512 from memory1+256, 64 bytes, stream1",
      "cuMemsetD8Async memory1+256 to 0, 64 bytes, stream1",
      "cuMemcpyDtoHAsync_v2 pinned1+0 from memory1+512, 64 bytes, stream1",
      "cuStreamSynchronize stream1",
      "cuEventDestroy_v2 event1",
      "cuStreamDestroy_v2 stream2",
      "cuStreamDestroy_v2 stream1",
      "cuCtxSynchronize",
      "cuMemFreeHost pinned1",
      "cuCtxSynchronize",
      "cuMemFree_v2 memory1",
      "cuCtxSynchronize",
      "cuModuleUnload module1",
      "cuDevicePrimaryCtxRelease_v2",
  };
  Lines called;
  for (const std::string& line : fake_.log())
    if (!line.starts_with("cuFuncGetAttribute") && line != "cuCtxSetCurrent")
      called.push_back(line);
  EXPECT_EQ(called, expected);
}

TEST_F(CudaObjects, ArenaGivesItsBytesAndNoOthers) {
  const DeviceRef gpu = device();
  const Arena arena(gpu, 1000);
  EXPECT_EQ(arena.bytes(), 1000u);
  EXPECT_EQ(arena.at(0, 0) % 256, 0u);
  EXPECT_EQ(arena.at(960, 40), arena.at(0, 1000) + 960);
  EXPECT_EQ(arena.at(1000, 0), arena.at(0, 0) + 1000);
  EXPECT_THROW(arena.at(960, 41), InternalError);
  EXPECT_THROW(arena.at(1001, 0), InternalError);
  EXPECT_THROW(arena.at(8, ~size_t{0}), InternalError);
  EXPECT_THROW(Arena(gpu, 0), InternalError);
}

TEST_F(CudaObjects, TheStandInShowsAMissingWait) {
  const DeviceRef gpu = device();
  const Arena arena(gpu, 64);
  const PinnedMemory from(gpu, 64), to(gpu, 64);
  for (const bool waits : {false, true}) {
    Stream copies(gpu), work(gpu);
    const Event copied(gpu);
    std::fill_n(from.bytes().data(), 64, waits ? std::byte{1} : std::byte{2});
    copies.copy_to_device(arena.at(0, 64), from.bytes().data(), 64);
    copies.record(copied);
    if (waits) work.wait(copied);
    work.copy_to_host(to.bytes().data(), arena.at(0, 64), 64);
    work.synchronize();
    EXPECT_EQ(to.bytes()[5], waits ? std::byte{1} : std::byte{0xcd});
  }
}

TEST_F(CudaObjects, EventsKeepTime) {
  register_kernels(fake_);
  const DeviceRef gpu = device();
  const Arena arena(gpu, 64);
  Stream stream(gpu);
  const Event start(gpu, Event::Timing::kOn), end(gpu, Event::Timing::kOn);
  EXPECT_TRUE(start.is_done());  // it was never recorded
  stream.record(start);
  stream.fill(arena.at(0, 64), 0, 64);
  stream.fill(arena.at(0, 64), 1, 64);
  stream.record(end);
  EXPECT_FALSE(end.is_done());
  end.synchronize();
  EXPECT_TRUE(end.is_done());
  EXPECT_NEAR(end.seconds_since(start), 2e-3, 1e-5);  // the stand-in's work takes 1 ms each
}

TEST_F(CudaObjects, AWaitIsForWhatTheEventStoodForThen) {
  const DeviceRef gpu = device();
  const Arena arena(gpu, 64);
  const PinnedMemory to(gpu, 64);
  Stream first(gpu), second(gpu);
  const Event event(gpu);
  first.fill(arena.at(0, 64), 1, 64);
  first.record(event);
  second.wait(event);
  first.fill(arena.at(0, 64), 2, 64);
  first.record(event);
  second.copy_to_host(to.bytes().data(), arena.at(0, 64), 64);
  second.synchronize();
  EXPECT_EQ(to.bytes()[0], std::byte{1});
  second.wait(event);
  second.copy_to_host(to.bytes().data(), arena.at(0, 64), 64);
  second.synchronize();
  EXPECT_EQ(to.bytes()[0], std::byte{2});
}

// Each batch goes through a slot to a place of its own; the device runs as late as it may.
TEST_F(CudaObjects, ASlotIsNotReusedBeforeItsCopyIsDone) {
  constexpr size_t kBatches = 9, kBytes = 100;
  const DeviceRef gpu = device();
  const Arena arena(gpu, kBatches * kBytes);
  const PinnedMemory host(gpu, kBatches * kBytes);
  Stream copies(gpu);
  PinnedRing ring(gpu, 3, kBytes);
  fake_.clear_log();
  for (size_t batch = 0; batch < kBatches; ++batch) {
    const PinnedRing::Slot slot = ring.acquire();
    EXPECT_EQ(slot.bytes.size(), kBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slot.bytes.data()) % 256, 0u);
    std::fill(slot.bytes.begin(), slot.bytes.end(), static_cast<std::byte>(batch + 1));
    copies.copy_to_device(arena.at(batch * kBytes, kBytes), slot.bytes.data(), kBytes);
    ring.release(slot, copies);
  }
  EXPECT_EQ(ring.waits(), kBatches - 3);
  EXPECT_EQ(lines({"cuEventSynchronize"}).size(), kBatches - 3);
  EXPECT_EQ(lines({"cuStreamSynchronize", "cuCtxSynchronize"}), Lines{});
  copies.copy_to_host(host.bytes().data(), arena.at(0, kBatches * kBytes), kBatches * kBytes);
  copies.synchronize();
  for (size_t i = 0; i < kBatches * kBytes; ++i)
    ASSERT_EQ(host.bytes()[i], static_cast<std::byte>(i / kBytes + 1)) << i;
}

// Which the stand-in would have shown: one slot for all, and nobody waits.
TEST_F(CudaObjects, TheStandInShowsASlotThatIsReusedEarly) {
  const DeviceRef gpu = device();
  const Arena arena(gpu, 64);
  const PinnedMemory slot(gpu, 64), to(gpu, 64);
  Stream copies(gpu);
  slot.bytes()[0] = std::byte{1};
  copies.copy_to_device(arena.at(0, 64), slot.bytes().data(), 64);
  slot.bytes()[0] = std::byte{2};
  copies.copy_to_host(to.bytes().data(), arena.at(0, 64), 64);
  copies.synchronize();
  EXPECT_EQ(to.bytes()[0], std::byte{2});
}

TEST_F(CudaObjects, SlotsAreTakenAndReleasedInTurns) {
  const DeviceRef gpu = device();
  PinnedRing ring(gpu, 2, 8);
  const PinnedRing::Slot first = ring.acquire(), second = ring.acquire();
  EXPECT_NE(first.bytes.data(), second.bytes.data());
  EXPECT_THROW(ring.acquire(), InternalError);
  ring.release(first);
  EXPECT_THROW(ring.release(first), InternalError);
  EXPECT_EQ(ring.acquire().bytes.data(), first.bytes.data());
  EXPECT_EQ(ring.waits(), 0u);
  EXPECT_THROW(PinnedRing(gpu, 0, 8), InternalError);
  EXPECT_THROW(PinnedRing(gpu, 2, 0), InternalError);
  EXPECT_THROW(PinnedRing(gpu, 3, ~size_t{0} / 2), InternalError);
}

TEST_F(CudaObjects, WhatIsMovedIsDestroyedOnce) {
  const DeviceRef gpu = device();
  Stream first(gpu), second(gpu);
  const StreamHandle handle = second.handle();
  first = std::move(second);
  EXPECT_EQ(first.handle(), handle);
  EXPECT_EQ(lines({"cuStreamDestroy_v2"}), Lines{"cuStreamDestroy_v2 stream1"});
  Stream third = std::move(first);
  std::vector<Arena> arenas;
  for (size_t i = 1; i < 10; ++i) arenas.emplace_back(gpu, i);
  EXPECT_EQ(arenas[8].bytes(), 9u);
  EXPECT_EQ(lines({"cuMemFree_v2"}), Lines{});
  PinnedRing ring(gpu, 2, 8), other(gpu, 2, 8);
  ring = std::move(other);
  EXPECT_EQ(lines({"cuMemFreeHost"}).size(), 1u);
}

TEST_F(CudaObjects, ObjectsOutliveTheReferenceToTheirDeviceAndTheirThread) {
  std::thread([gpu = device()]() mutable {
    gpu->make_current();
    Stream stream(gpu);
    Arena arena(gpu, 64);
    gpu.reset();
    stream.fill(arena.at(0, 64), 1, 64);
    // On a thread that has no context yet; the fill has not run.
    std::thread([moved = std::move(arena), queue = std::move(stream)] {}).join();
  }).join();
  EXPECT_EQ(lines({"cuMemFree_v2"}).size(), 1u);
}

TEST_F(CudaObjects, MemoryThatIsNotPageLockedIsCopiedWithinTheCall) {
  const DeviceRef gpu = device();
  const Arena arena(gpu, 64);
  Stream stream(gpu);
  std::array<std::byte, 64> host{};
  host[0] = std::byte{7};
  stream.copy_to_device(arena.at(0, 64), host.data(), 64);
  host[0] = std::byte{8};
  stream.copy_to_host(host.data(), arena.at(0, 64), 64);
  EXPECT_EQ(host[0], std::byte{7});
}

}  // namespace
}  // namespace ridge::cuda
