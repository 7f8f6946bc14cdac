#include "ridge/backend/cuda/trace/cupti.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"

namespace ridge::cuda {
namespace {

constexpr uint32_t kLeastVersion = 18;  // the version of CUDA 12.0
constexpr size_t kMostText = 200;       // bytes of another program's text that an error holds
constexpr const char* kDriverName = "libcuda.so.1";

// The name of the first function that is missing; null when all are there.
const char* find_all(const OpenedLibrary& library, CuptiFunctions& to) {
  const char* missing = nullptr;
  const auto find = [&](auto*& function, const char* name) {
    if (!library.find(function, name) && missing == nullptr) missing = name;
  };
  find(to.get_version, "cuptiGetVersion");
  find(to.get_result_string, "cuptiGetResultString");
  find(to.get_callback_name, "cuptiGetCallbackName");
  find(to.subscribe, "cuptiSubscribe");
  find(to.unsubscribe, "cuptiUnsubscribe");
  find(to.set_thread_id_type, "cuptiSetThreadIdType");
  find(to.register_clock, "cuptiActivityRegisterTimestampCallback");
  find(to.register_callbacks, "cuptiActivityRegisterCallbacks");
  find(to.set_attribute, "cuptiActivitySetAttribute");
  find(to.enable, "cuptiActivityEnable");
  find(to.disable, "cuptiActivityDisable");
  find(to.flush_all, "cuptiActivityFlushAll");
  find(to.get_next_record, "cuptiActivityGetNextRecord");
  find(to.get_dropped, "cuptiActivityGetNumDroppedRecords");
  find(to.push_external, "cuptiActivityPushExternalCorrelationId");
  find(to.pop_external, "cuptiActivityPopExternalCorrelationId");
  return missing;
}

// CUPTI opens the driver by its own name, and where there is none its calls never return (13.2
// does). What the environment names may be one that needs no driver.
bool may_start() {
  const char* const named = std::getenv("RIDGE_CUPTI");
  return (named != nullptr && *named != '\0') ||
         ::dlopen(kDriverName, RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

std::string fix_of(CuptiResult result) {
  switch (result) {
    case CuptiResult::kMultipleSubscribers:
      return "another profiler is attached to this program, and CUPTI serves one: record with one "
             "of the two";
    case CuptiResult::kInsufficientPrivileges:
      return "let users profile (NVreg_RestrictProfilingToAdminUsers=0 of the module nvidia), or "
             "record as root";
    case CuptiResult::kNotInitialized:
      return "name the libcupti of the driver's CUDA in RIDGE_CUPTI";
    default:
      return {};
  }
}

}  // namespace

std::shared_ptr<const Cupti> Cupti::open(int driver_version) {
  const std::shared_ptr<Cupti> made(new Cupti);
  // One that is newer than the driver does not start; an older one may.
  const OpenedLibrary library = open_library(
      {.variable = "RIDGE_CUPTI",
       .files = {by_driver(driver_version, "libcupti.so.13", "libcupti.so.12"),
                 by_driver(driver_version, "libcupti.so.12", "libcupti.so.13")},
       .folders = {"/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"},
       .failed = "[cupti] cannot open the recorder of GPUs",
       .fix = by_driver(driver_version,
                        "install it by `pip install nvidia-cuda-cupti` and name its "
                        "libcupti.so.13 in RIDGE_CUPTI",
                        "install it by `pip install nvidia-cuda-cupti-cu12` and name its "
                        "libcupti.so.12 in RIDGE_CUPTI")},
      [&](const OpenedLibrary& opened) {
        made->call = {};
        const char* const missing = find_all(opened, made->call);
        if (missing != nullptr)
          return fmt::format("'{}' has no function {}", plain_line(opened.path), missing);
        if (!may_start()) return fmt::format("'{}' needs a driver, {}", opened.path, kDriverName);
        made->check(made->call.get_version(&made->version_), "cuptiGetVersion");
        return made->version_ >= kLeastVersion
                   ? std::string()
                   : fmt::format("'{}' is older than CUDA 12.0", plain_line(opened.path));
      });
  made->path_ = library.path;
  return made;
}

void Cupti::check(CuptiResult result, const char* name) const {
  if (result == CuptiResult::kSuccess) return;
  const char* text = nullptr;
  std::string error = fmt::format("error {}", static_cast<int>(result));
  if (call.get_result_string(result, &text) == CuptiResult::kSuccess && text != nullptr)
    error = shortened(text, kMostText);
  throw UserError(fmt::format("[cupti] {} failed: {}", name, error), fix_of(result));
}

const char* Cupti::name_of(CallDomain domain, uint32_t number) const {
  const char* name = nullptr;
  return call.get_callback_name(domain, number, &name) == CuptiResult::kSuccess ? name : nullptr;
}

bool Cupti::read_buffer(std::span<uint8_t> buffer, ActivityRecords& records) const {
  const uint8_t* const end = buffer.data() + buffer.size();
  uint8_t* record = nullptr;
  for (;;) {
    const uint8_t* const last = record;
    const CuptiResult result = call.get_next_record(buffer.data(), buffer.size(), &record);
    if (result == CuptiResult::kMaxLimitReached) return true;
    // Each lies behind the one before: else this would not end, or read what is not there.
    if (result != CuptiResult::kSuccess || record < buffer.data() || record >= end ||
        (last != nullptr && record <= last))
      return false;
    records.add(std::as_bytes(std::span<const uint8_t>(record, end)));
  }
}

}  // namespace ridge::cuda
