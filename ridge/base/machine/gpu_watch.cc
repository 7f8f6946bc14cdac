#include "ridge/base/machine/gpu_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "ridge/base/machine/nvml.h"
#include "ridge/base/trace/trace.h"

namespace ridge {

GpuWatch::GpuWatch(std::string uuid, int64_t period_ms, const std::string& nvml)
    : uuid_(std::move(uuid)), nvml_(std::make_unique<Nvml>(nvml)) {
  const std::optional<GpuSample> first = nvml_->sample(uuid_);
  if (!first) {
    problem_ =
        nvml_->problem().empty() ? "the driver's NVML shows no GPU " + uuid_ : nvml_->problem();
    return;
  }
  first_joules_ = first->joules;
  take();
  thread_ = std::thread([this, period_ms] { run(period_ms); });
}

GpuWatch::~GpuWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void GpuWatch::run(int64_t period_ms) {
  name_this_thread("GPU watch");
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::milliseconds(period_ms), [this] { return is_over_; })) {
    lock.unlock();
    take();
    lock.lock();
  }
}

void GpuWatch::take() {
  const std::optional<GpuSample> sample = nvml_->sample(uuid_);
  const std::lock_guard lock(mutex_);
  if (!sample) {  // it is lost: its last sample no longer holds
    reading_ = GpuReading();
    return;
  }
  reading_.watts = sample->watts;
  reading_.joules = sample->joules < 0 || first_joules_ < 0 ? -1 : sample->joules - first_joules_;
  reading_.sm_mhz = sample->sm_mhz;
  reading_.celsius = sample->celsius;
  reading_.memory_bytes = sample->memory_bytes;
  reading_.held_by = fmt::format("{}", fmt::join(sample->held_by, ", "));
}

void GpuWatch::latest(GpuReading& reading) const {
  const std::lock_guard lock(mutex_);
  reading = reading_;
}

}  // namespace ridge
