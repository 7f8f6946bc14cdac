#include "ridge/doctor/read/kineto_kinds.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace ridge::doctor {
namespace {

using Named = std::pair<std::string_view, EventKind>;

// In lower case: old versions began with a capital letter.
constexpr std::array kCategories = {
    Named{"cpu_op", EventKind::kOperator},
    Named{"cuda_runtime", EventKind::kRuntime},
    Named{"kernel", EventKind::kKernel},
    Named{"python_function", EventKind::kPython},
    Named{"cuda_driver", EventKind::kRuntime},
    Named{"gpu_memcpy", EventKind::kCopy},
    Named{"gpu_memset", EventKind::kSet},
    Named{"user_annotation", EventKind::kRange},
    Named{"gpu_user_annotation", EventKind::kDeviceRange},
    Named{"cuda_sync", EventKind::kSynchronization},
    Named{"overhead", EventKind::kOverhead},
    Named{"operator", EventKind::kOperator},
    Named{"runtime", EventKind::kRuntime},
    Named{"driver", EventKind::kRuntime},
    Named{"hip_runtime", EventKind::kRuntime},
    Named{"hip_driver", EventKind::kRuntime},
    Named{"hip_api", EventKind::kRuntime},
    Named{"concurrent_kernel", EventKind::kKernel},
    Named{"memcpy", EventKind::kCopy},
    Named{"memset", EventKind::kSet},
    Named{"nvtx", EventKind::kRange},
    Named{"loader", EventKind::kRange},  // this and the next two are Ridge's
    Named{"metrics", EventKind::kRange},
    Named{"pass", EventKind::kRange},
};

bool equals_lower(std::string_view text, std::string_view lower) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), same);
}

std::optional<EventKind> by_category(std::string_view category) {
  for (const auto& [text, kind] : kCategories)
    if (equals_lower(category, text)) return kind;
  return std::nullopt;
}

/// "cudaX", "hipX" or "cuX".
bool is_runtime_call(std::string_view name) {
  for (std::string_view prefix : {"cuda", "hip", "cu"})
    if (name.starts_with(prefix) && name.size() > prefix.size() && name[prefix.size()] >= 'A' &&
        name[prefix.size()] <= 'Z')
      return true;
  return false;
}

bool is_copy(std::string_view name) {
  return name.starts_with("Memcpy ") || name.starts_with("CopyHostTo") ||
         name.starts_with("CopyDeviceTo");
}

bool is_set(std::string_view name) {
  return name.starts_with("Memset ") || name.starts_with("FillBuffer");
}

MemoryKind memory_kind(std::string_view word) {
  while (word.starts_with(' ')) word.remove_prefix(1);
  if (word.starts_with("Pageable")) return MemoryKind::kPageable;
  if (word.starts_with("Pinned")) return MemoryKind::kPinned;
  if (word.starts_with("Device")) return MemoryKind::kDevice;
  if (word.starts_with("Managed") || word.starts_with("Unified")) return MemoryKind::kManaged;
  if (word.starts_with("Array")) return MemoryKind::kArray;
  return MemoryKind::kUnknown;  // AMD says "Host" of pinned and of pageable memory
}

}  // namespace

EventKind kineto_kind(std::string_view category, std::string_view name, KindHints hints) {
  const auto known = by_category(category);
  // AMD's recorder once called all that a device does a kernel.
  if (known && *known != EventKind::kKernel) return *known;
  if (is_copy(name)) return EventKind::kCopy;
  if (is_set(name)) return EventKind::kSet;
  if (known) return *known;
  if (is_runtime_call(name)) return EventKind::kRuntime;
  if (hints.has_launch || hints.has_stream) return EventKind::kKernel;
  if (name.starts_with("aten::") || name.starts_with("autograd::")) return EventKind::kOperator;
  if (name.starts_with("ProfilerStep#")) return EventKind::kRange;
  return EventKind::kOther;
}

bool is_idle_category(std::string_view category) { return category == "Trace"; }

void set_memory_kinds(std::string_view name, Transfer& transfer) {
  const size_t open = name.find('('), arrow = name.find("->");
  if (open != std::string_view::npos && arrow != std::string_view::npos && open < arrow) {
    transfer.from = memory_kind(name.substr(open + 1));
    transfer.to = memory_kind(name.substr(arrow + 2));
  } else if (open != std::string_view::npos) {
    transfer.to = memory_kind(name.substr(open + 1));
  } else {
    const auto says = [&](std::string_view part) { return name.find(part) != name.npos; };
    if (says("DtoH") || says("DtoD") || says("CopyDevice")) transfer.from = MemoryKind::kDevice;
    if (says("HtoD") || says("DtoD") || says("ToDevice")) transfer.to = MemoryKind::kDevice;
  }
}

Sync::What sync_kind(std::string_view text) {
  if (text == "Stream Wait Event") return Sync::What::kStreamWaitsEvent;
  if (text == "Event Sync") return Sync::What::kEvent;
  if (text == "Stream Sync") return Sync::What::kStream;
  if (text == "Context Sync") return Sync::What::kContext;
  return Sync::What::kUnknown;
}

int64_t element_bytes(std::string_view dtype) {
  using Sized = std::pair<std::string_view, int64_t>;
  constexpr std::array kSizes = {Sized{"double", 8},
                                 Sized{"long", 8},
                                 Sized{"float", 4},
                                 Sized{"int", 4},
                                 Sized{"bfloat16", 2},
                                 Sized{"half", 2},
                                 Sized{"short", 2},
                                 Sized{"byte", 1},
                                 Sized{"char", 1},
                                 Sized{"bool", 1},
                                 Sized{"complexfloat", 8},
                                 Sized{"complexdouble", 16},
                                 Sized{"float8_e4m3fn", 1},
                                 Sized{"float8_e5m2", 1}};
  for (const auto& [name, size] : kSizes)
    if (equals_lower(dtype, name)) return size;
  return 0;
}

}  // namespace ridge::doctor
