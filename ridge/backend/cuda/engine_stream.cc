#include "ridge/backend/cuda/engine_stream.h"

namespace ridge::cuda {
namespace {

class EngineEvent final : public ridge::Event {
 public:
  explicit EngineEvent(DeviceRef device) : event_(std::move(device)) {}
  const cuda::Event& driver_event() const { return event_; }
  void synchronize() override {
    event_.device().ensure_current();
    event_.synchronize();
  }

 private:
  cuda::Event event_;
};

const Event& driver_event(ridge::Event& event) {
  auto* const on_gpu = dynamic_cast<EngineEvent*>(&event);
  check_internal(on_gpu != nullptr, "an event of another backend");
  return on_gpu->driver_event();
}

}  // namespace

EngineStream::~EngineStream() {
  faults_.forget(stream_);
  copies_.drop(stream_);
}

std::unique_ptr<ridge::Event> EngineStream::make_event() {
  stream_.device().ensure_current();
  return std::make_unique<EngineEvent>(stream_.device_ref());
}

void EngineStream::record(ridge::Event& event) {
  stream_.device().ensure_current();
  stream_.record(driver_event(event));
}

void EngineStream::wait(ridge::Event& event) {
  stream_.device().ensure_current();
  stream_.wait(driver_event(event));
}

void EngineStream::synchronize() {
  stream_.device().ensure_current();
  try {
    faults_.synchronize(stream_);
  } catch (...) {
    copies_.drop(stream_);  // or a later wait would write to memory that nobody reads any more
    throw;
  }
  copies_.hand_over(stream_);
}

}  // namespace ridge::cuda
