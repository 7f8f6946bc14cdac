#include "ridge/backend/cuda/device_rates.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/captured_work.h"
#include "ridge/backend/cuda/driver/module.h"
#include "ridge/backend/cuda/driver/staging.h"
#include "ridge/base/clock.h"

namespace ridge::cuda {
namespace {

constexpr int kRepetitions = 5;
// Far beyond any cache of a device, and what a GPU that others use may have left.
constexpr size_t kMostCopyBytes = size_t{256} << 20, kLeastCopyBytes = size_t{1} << 20;
constexpr size_t kTransferBytes = size_t{64} << 20;
constexpr int kCopies = 4;      // so many in a row, or the launch would count
constexpr int kLaunches = 500;  // fewer than a device keeps waiting
constexpr int kGraphNodes = 200;
constexpr int64_t kLeastEdge = 64, kMostEdge = 8192;
constexpr double kEnoughSeconds = 5e-3;

// In the form of any device that Ridge runs on; the driver compiles it.
constexpr const char* kNothing = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
)";

/// The best time of what `queue` puts on the stream, after one that is not timed: it may load code.
double best_seconds(Stream& stream, FunctionRef<void()> queue) {
  const Event start(stream.device_ref(), Event::Timing::kOn);
  const Event end(stream.device_ref(), Event::Timing::kOn);
  queue();
  stream.synchronize();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) {
    stream.record(start);
    queue();
    stream.record(end);
    stream.synchronize();
    best = std::min(best, end.seconds_since(start));
  }
  // An event's clock has steps of half a microsecond.
  return std::max(best, 0.5e-6);
}

double copy_rate(Stream& stream) {
  const DeviceRef& device = stream.device_ref();
  const size_t bytes = std::clamp(device->memory_use().free / 8, kLeastCopyBytes, kMostCopyBytes);
  const Arena from(device, bytes), to(device, bytes);
  stream.fill(from.at(0, bytes), 1, bytes);
  const double seconds = best_seconds(stream, [&] {
    for (int i = 0; i < kCopies; ++i) stream.copy(to.at(0, bytes), from.at(0, bytes), bytes);
  });
  return 2.0 * kCopies * static_cast<double>(bytes) / seconds;
}

TransferRates transfer_rates(Stream& stream, const Arena& memory, std::span<std::byte> host) {
  const size_t bytes = host.size();
  const DevicePointer at = memory.at(0, bytes);
  const double moved = kCopies * static_cast<double>(bytes);
  return {.to_device = moved / best_seconds(stream,
                                            [&] {
                                              for (int i = 0; i < kCopies; ++i)
                                                stream.copy_to_device(at, host.data(), bytes);
                                            }),
          .to_host = moved / best_seconds(stream, [&] {
                       for (int i = 0; i < kCopies; ++i)
                         stream.copy_to_host(host.data(), at, bytes);
                     })};
}

void measure_transfers(Stream& stream, Calibration& to) {
  const DeviceRef& device = stream.device_ref();
  const size_t bytes = std::clamp(device->memory_use().free / 8, kLeastCopyBytes, kTransferBytes);
  const Arena memory(device, bytes);
  {
    const PinnedMemory pinned(device, bytes);
    to.pinned = transfer_rates(stream, memory, pinned.bytes());
  }
  std::vector<std::byte> pageable(bytes, std::byte{1});  // pages that were never written are none
  to.pageable = transfer_rates(stream, memory, pageable);
}

void measure_launches(Stream& stream, Calibration& to) {
  const Module module(stream.device_ref(), kNothing, "nothing");
  const Kernel nothing = module.kernel("nothing");
  const auto queue = [&](int count) {
    for (int i = 0; i < count; ++i) launch(stream, nothing, {}, {});
  };
  queue(1);
  stream.synchronize();
  // A launch costs time of the host, so the host's clock measures it.
  double best = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const int64_t start = now_ns();
    queue(kLaunches);
    best = std::min(best, 1e-9 * static_cast<double>(now_ns() - start));
    stream.synchronize();
  }
  to.launch_s = best / kLaunches;
  const CapturedWork captured(stream, [&] { queue(kGraphNodes); });
  to.graph_node_s = best_seconds(stream, [&] { captured.launch(stream); }) / kGraphNodes;
}

// Twice as large until one takes long enough: larger ones need no better kernel, only more time.
double product_rate(Stream& stream, const MakeProduct& make, DType dtype, double most_wait_s) {
  double rate = 0;
  for (int64_t edge = kLeastEdge; edge <= kMostEdge; edge *= 2) {
    const std::function<void()> queue = make(dtype, edge);
    if (!queue) break;
    const int64_t start = now_ns();
    const double seconds = best_seconds(stream, queue);
    const double waited = 1e-9 * static_cast<double>(now_ns() - start);
    const auto size = static_cast<double>(edge);
    rate = std::max(rate, 2 * size * size * size / seconds);
    if (seconds >= kEnoughSeconds || waited > most_wait_s) break;
  }
  return rate;
}

}  // namespace

Calibration measure_device(Stream& stream, const MakeProduct& make_product, double most_wait_s) {
  Calibration result;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    if (const double rate = product_rate(stream, make_product, dtype, most_wait_s); rate > 0)
      result.flops_per_s[dtype] = rate;
  result.copy_bytes_per_s = copy_rate(stream);
  measure_transfers(stream, result);
  measure_launches(stream, result);
  return result;
}

}  // namespace ridge::cuda
