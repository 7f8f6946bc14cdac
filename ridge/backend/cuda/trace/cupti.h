// CUPTI, NVIDIA's recorder of what a device does, opened at run time: the one place where its
// functions are found and its errors become ours.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "ridge/backend/cuda/driver/library_search.h"
#include "ridge/backend/cuda/trace/activity_records.h"
#include "ridge/backend/cuda/trace/cupti_api.h"

namespace ridge::cuda {

class Cupti {
 public:
  /// Opens the first that it finds: what $RIDGE_CUPTI names, or libcupti of the driver's CUDA
  /// (`driver_version` as Driver::version), then another. UserError when there is none.
  static std::shared_ptr<const Cupti> open(int driver_version);

  const std::string& path() const { return path_; }
  /// The version of its interface: 18 for CUDA 12.0, 130202 for a 13.2.
  uint32_t version() const { return version_; }

  /// UserError unless the call succeeded; `call` is its name.
  void check(CuptiResult result, const char* call) const;
  /// "cuLaunchKernel"; null where it knows no such call.
  const char* name_of(CallDomain domain, uint32_t call) const;
  /// Hands all records of a buffer on. False when the buffer broke off: what follows is lost.
  bool read_buffer(std::span<uint8_t> buffer, ActivityRecords& records) const;

  CuptiFunctions call{};

 private:
  Cupti() = default;

  std::string path_;
  uint32_t version_ = 0;
};

}  // namespace ridge::cuda
