#include "ridge/tune/pytorch/prescription.h"

#include <algorithm>
#include <iterator>

namespace ridge {
namespace {

struct Prescription {
  std::string_view rule;
  std::string_view word;  ///< A rule that finds several things is told by this word of its advice.
  std::span<const std::string_view> cures;
};

constexpr std::string_view kLoading[] = {"loader.cache", "loader.workers", "loader.background"};
constexpr std::string_view kNearerData[] = {"loader.cache"};
constexpr std::string_view kAhead[] = {"loader.workers", "loader.background"};
constexpr std::string_view kFewerCalls[] = {
    "model.compile", "optimizer.fused", "optimizer.compile"};
constexpr std::string_view kLargerBatch[] = {
    "loader.batch", "model.compile", "optimizer.fused", "optimizer.compile"};
constexpr std::string_view kFusion[] = {"model.compile"};
constexpr std::string_view kPinned[] = {"loader.to_device", "loader.pin"};
constexpr std::string_view kDeviceMemory[] = {"cuda_allocator"};
constexpr std::string_view kShorterFormats[] = {"model.autocast", "matmul.tf32"};
constexpr std::string_view kWiderUnits[] = {"matmul.tf32"};
constexpr std::string_view kSearch[] = {"model.compile", "cudnn.benchmark"};
constexpr std::string_view kOneLayout[] = {"model.channels_last", "model.compile"};
constexpr std::string_view kOneUpdate[] = {
    "optimizer.fused", "optimizer.foreach", "optimizer.compile"};
constexpr std::string_view kSaves[] = {"save.background"};
constexpr std::string_view kThreads[] = {"threads", "cpus"};
constexpr std::string_view kPinnedThreads[] = {"cpus", "threads"};

constexpr Prescription kPrescriptions[] = {
    {"R01", "", kLoading},
    {"R02", "", kNearerData},
    {"R03", "", kFewerCalls},
    {"R04", "", kFusion},
    {"R06", "", kPinned},
    {"R07", "", kPinned},
    {"R10", "", kDeviceMemory},
    {"R13", "", kShorterFormats},
    {"R14", "", kSearch},
    {"R15", "wide products", kWiderUnits},
    {"R16", "", kOneLayout},
    {"R18", "", kLargerBatch},
    {"R21", "", kOneUpdate},
    {"R29", "checkpoints", kSaves},
    {"R29", "loader", kAhead},
    {"R29", "pin threads", kPinnedThreads},
    {"R30", "", kThreads},
};

}  // namespace

std::span<const std::string_view> cures_of(std::string_view rule, std::string_view advice) {
  const auto found = std::ranges::find_if(kPrescriptions, [&](const Prescription& each) {
    return each.rule == rule && advice.find(each.word) != std::string_view::npos;
  });
  return found == std::end(kPrescriptions) ? std::span<const std::string_view>() : found->cures;
}

}  // namespace ridge
