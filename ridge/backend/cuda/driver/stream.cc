#include "ridge/backend/cuda/driver/stream.h"

namespace ridge::cuda {
namespace {

Owned<EventHandle> make_event(DeviceRef device, Event::Timing timing) {
  EventHandle event = nullptr;
  const Driver& driver = device->driver();
  driver.check(driver.event_create(&event, timing == Event::Timing::kOn ? 0 : kEventDisableTiming));
  return {std::move(device), event, &Driver::event_destroy};
}

Owned<StreamHandle> make_stream(DeviceRef device) {
  StreamHandle stream = nullptr;
  const Driver& driver = device->driver();
  driver.check(driver.stream_create(&stream, kStreamNonBlocking));
  return {std::move(device), stream, &Driver::stream_destroy};
}

}  // namespace

Event::Event(DeviceRef device, Timing timing) : event_(make_event(std::move(device), timing)) {}

bool Event::is_done() const {
  const Driver& driver = event_.device().driver();
  const Status status = driver.event_query(handle());
  if (status.result == Result::kNotReady) return false;
  driver.check(status);
  return true;
}

void Event::synchronize() const {
  const Driver& driver = event_.device().driver();
  driver.check(driver.event_synchronize(handle()));
}

double Event::seconds_since(const Event& start) const {
  const Driver& driver = event_.device().driver();
  float milliseconds = 0;
  driver.check(driver.event_elapsed_time(&milliseconds, start.handle(), handle()));
  return 1e-3 * static_cast<double>(milliseconds);
}

Stream::Stream(DeviceRef device) : stream_(make_stream(std::move(device))) {}

void Stream::record(const Event& event) {
  const Driver& driver = device().driver();
  driver.check(driver.event_record(event.handle(), handle()));
}

void Stream::wait(const Event& event) {
  const Driver& driver = device().driver();
  driver.check(driver.stream_wait_event(handle(), event.handle(), 0));
}

void Stream::synchronize() {
  const Driver& driver = device().driver();
  driver.check(driver.stream_synchronize(handle()));
}

void Stream::copy_to_device(DevicePointer to, const void* from, size_t bytes) {
  const Driver& driver = device().driver();
  driver.check(driver.memcpy_htod_async(to, from, bytes, handle()), "{} bytes", bytes);
}

void Stream::copy_to_host(void* to, DevicePointer from, size_t bytes) {
  const Driver& driver = device().driver();
  driver.check(driver.memcpy_dtoh_async(to, from, bytes, handle()), "{} bytes", bytes);
}

void Stream::copy(DevicePointer to, DevicePointer from, size_t bytes) {
  const Driver& driver = device().driver();
  driver.check(driver.memcpy_dtod_async(to, from, bytes, handle()), "{} bytes", bytes);
}

void Stream::fill(DevicePointer to, unsigned char value, size_t bytes) {
  const Driver& driver = device().driver();
  driver.check(driver.memset_d8_async(to, value, bytes, handle()), "{} bytes", bytes);
}

}  // namespace ridge::cuda
