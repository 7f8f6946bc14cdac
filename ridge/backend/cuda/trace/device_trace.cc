#include "ridge/backend/cuda/trace/device_trace.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "ridge/backend/cuda/trace/activity_buffers.h"
#include "ridge/backend/cuda/trace/cupti.h"
#include "ridge/base/clock.h"
#include "ridge/base/trace/trace.h"

namespace ridge::cuda {
namespace {

// Calls, waits and events before kernels: whatever is enabled last may miss its first call.
constexpr ActivityKind kKinds[] = {ActivityKind::kExternalCorrelation,
                                   ActivityKind::kDriverCall,
                                   ActivityKind::kRuntimeCall,
                                   ActivityKind::kEvent,
                                   ActivityKind::kSynchronization,
                                   ActivityKind::kOverhead,
                                   ActivityKind::kCopy,
                                   ActivityKind::kSet,
                                   ActivityKind::kConcurrentKernel};

// A launch makes a kernel, a call, the two scopes' ids and, now and then, a wait.
constexpr size_t kBytesPerEvent = 400;
constexpr size_t kLeastBuffers = 8, kMostBuffers = 256;  // some for each thread that launches

// CUPTI's callbacks get no word of ours: what they need is of the process, as CUPTI is.
ActivityBuffers& buffers() {
  static ActivityBuffers* const made = new ActivityBuffers;
  return *made;
}
// Set before the first scope is heard, and never taken away: a scope may end when all else has.
std::atomic<CuptiFunctions::ActivityPushExternalCorrelationId*> push_external{nullptr};
std::atomic<CuptiFunctions::ActivityPopExternalCorrelationId*> pop_external{nullptr};

void buffer_requested(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = buffers().take();  // null: CUPTI drops records, and counts them
  *bytes = *buffer == nullptr ? 0 : ActivityBuffers::kBytes;
  *most_records = 0;
}

void buffer_completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  buffers().give_back(buffer, valid_bytes);
}

uint64_t host_clock() { return static_cast<uint64_t>(now_ns()); }

void no_callback(void*, uint32_t, uint32_t, const void*) {}

// The id of a scope is the address of its name, which lives as long as the process. Ids lie on a
// stack of CUPTI's for each thread: one that was put there is taken away, however late.
void scope_begins(const char* name) {
  const auto id = reinterpret_cast<uint64_t>(name);
  static_cast<void>(push_external.load(std::memory_order_acquire)(ExternalKind::kCustom0, id));
}
void scope_ends() {
  static_cast<void>(pop_external.load(std::memory_order_acquire)(ExternalKind::kCustom0, nullptr));
}
constexpr ScopeHooks kScopeHooks = {scope_begins, scope_ends};

/// CUPTI records all devices of a process at once, so there is one for all.
class Recorder final : public TraceSource {
 public:
  void add(const Device& device) {
    const std::lock_guard lock(mutex_);
    devices_.push_back(&device);
  }
  void remove(const Device& device) {
    const std::lock_guard lock(mutex_);
    if (devices_.size() == 1) end();  // there is nothing to record any more
    devices_.erase(std::find(devices_.begin(), devices_.end(), &device));
  }

  void start(size_t events) noexcept override {
    const std::lock_guard lock(mutex_);
    end();
    if (devices_.empty()) return;
    try {
      begin(events);
    } catch (const std::exception& error) {
      end();
      note_ = fmt::format("the trace is without the device: {}", error.what());
    }
  }

  void stop() noexcept override {
    const std::lock_guard lock(mutex_);
    end();
  }

  void drain(TraceLog& log) override {
    const std::lock_guard lock(mutex_);
    if (subscriber_ != nullptr) return;
    if (!note_.empty()) log.notes.push_back(std::exchange(note_, {}));
    log.dropped += std::exchange(dropped_, 0);
    if (cupti_ == nullptr) return;
    for (const DeviceFacts& facts : std::exchange(recorded_, {}))
      log.devices.push_back({.number = facts.number,
                             .name = facts.name,
                             .major = facts.limits.major,
                             .minor = facts.limits.minor,
                             .multiprocessors = facts.limits.multiprocessors,
                             .memory_bytes = facts.memory_bytes});
    ActivityRecords records(
        {.call = [this](CallDomain domain, uint32_t call) { return cupti_->name_of(domain, call); },
         .scope = [](uint64_t id) { return reinterpret_cast<const char*>(id); }});
    buffers().read([&](std::span<uint8_t> buffer) {
      if (!cupti_->read_buffer(buffer, records)) ++log.dropped;
    });
    buffers().release();
    records.finish(log);
  }

 private:
  void begin(size_t events) {
    cupti_ = Cupti::open(devices_.front()->driver().version);
    const CuptiFunctions& call = cupti_->call;
    buffers().reserve(std::clamp(kLeastBuffers + events * kBytesPerEvent / ActivityBuffers::kBytes,
                                 kLeastBuffers,
                                 kMostBuffers));
    // Who subscribes is the one profiler of the process, or learns that there is another.
    cupti_->check(call.subscribe(&subscriber_, no_callback, nullptr), "cuptiSubscribe");
    cupti_->check(call.set_thread_id_type(ThreadIdType::kSystem), "cuptiSetThreadIdType");
    cupti_->check(call.register_clock(host_clock), "cuptiActivityRegisterTimestampCallback");
    cupti_->check(call.register_callbacks(buffer_requested, buffer_completed),
                  "cuptiActivityRegisterCallbacks");
    // CUPTI would fill them with zeroes itself, in the launching thread. A version without this
    // setting does so, and the result is the same.
    uint8_t are_zeroed = 1;
    size_t bytes = sizeof are_zeroed;
    static_cast<void>(call.set_attribute(ActivityAttribute::kZeroedBuffers, &bytes, &are_zeroed));
    for (const ActivityKind kind : kKinds) {
      cupti_->check(call.enable(kind), "cuptiActivityEnable");
      enabled_.push_back(kind);
    }
    recorded_.clear();
    std::map<int, DeviceFacts> facts;  // one may be opened twice
    for (const Device* device : devices_) facts.emplace(device->facts().number, device->facts());
    for (const auto& [number, each] : facts) recorded_.push_back(each);
    push_external.store(call.push_external, std::memory_order_release);
    pop_external.store(call.pop_external, std::memory_order_release);
    hear_scopes(ScopeListener::kDevice, kScopeHooks);
  }

  void end() noexcept {
    if (subscriber_ == nullptr) return;
    const CuptiFunctions& call = cupti_->call;
    stop_hearing_scopes(ScopeListener::kDevice);
    // A kernel has its times when it has run. What fails from here on leaves a shorter trace.
    if (!enabled_.empty())
      for (const Device* device : devices_) {
        device->make_current_quietly();
        device->wait_quietly();
      }
    for (const ActivityKind kind : enabled_) static_cast<void>(call.disable(kind));
    if (!enabled_.empty()) {
      static_cast<void>(call.flush_all(kFlushForced));
      size_t dropped = 0;
      if (call.get_dropped(nullptr, 0, &dropped) == CuptiResult::kSuccess)
        dropped_ += static_cast<int64_t>(dropped);
    }
    enabled_.clear();
    static_cast<void>(call.unsubscribe(std::exchange(subscriber_, nullptr)));
  }

  std::mutex mutex_;
  std::vector<const Device*> devices_;
  std::shared_ptr<const Cupti> cupti_;
  SubscriberHandle subscriber_ = nullptr;  ///< Null: nothing is being recorded.
  std::vector<ActivityKind> enabled_;
  std::vector<DeviceFacts> recorded_;  ///< Not yet drained.
  std::string note_;
  int64_t dropped_ = 0;
};

// Never destroyed: the trace keeps it as a source for as long as the process lives.
Recorder& recorder() {
  static Recorder* const made = [] {
    auto* const fresh = new Recorder;
    add_trace_source(*fresh);
    return fresh;
  }();
  return *made;
}

}  // namespace

DeviceTrace::DeviceTrace(DeviceRef device) : device_(std::move(device)) {
  recorder().add(*device_);
}

DeviceTrace::~DeviceTrace() { recorder().remove(*device_); }

}  // namespace ridge::cuda
