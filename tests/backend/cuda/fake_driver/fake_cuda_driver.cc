// A stand-in for NVIDIA's driver: the functions that Ridge calls, as their published reference
// describes them, over a device of the host (fake_machine.h). Tests steer it by fake_cuda.h; other
// processes by their environment: FAKE_CUDA_VERSION (13020), _DEVICES (1), _MAJOR (9), _MIB (1024
// of memory), _ATTRIBUTES (16=108: by the driver's numbers), _FAIL (cuInit=803: its first call;
// cuInit@2=803: its second), _RANDOM (the seed of a drawn order of work; else it runs as late as it
// may), _LOG (a file for the log, which ends with what was left and done wrong).
#include <cstdlib>
#include <cstring>

#include "tests/backend/cuda/fake_driver/fake_calls.h"

// NOLINTBEGIN(readability-identifier-naming): the names are those of the driver.
using namespace ridge::test;
using Address = unsigned long long;

namespace {

struct ErrorText {
  int code;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803,
     "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda "
     "driver combination"},
    {900,
     "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is "
     "capturing"},
    {901,
     "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error "
     "during capture"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
};

int describe(int code, const char** text, const char* ErrorText::* member) {
  *text = nullptr;
  for (const ErrorText& error : kErrors)
    if (error.code == code) *text = error.*member;
  return *text == nullptr ? kInvalidValue : kSuccess;
}

bool is_device(const FakeMachine& fake, int device) { return device >= 0 && device < fake.devices; }

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

// Whether each piece runs right after the one that was captured before it.
bool is_row(const FakeGraph& graph) {
  for (size_t i = 0; i < graph.size(); ++i)
    if (graph[i].after != (i == 0 ? std::set<size_t>{} : std::set<size_t>{i - 1})) return false;
  return true;
}

// What the environment says of an attribute, as "16=108,97=166912"; false: nothing.
bool is_told(int attribute, int* value) {
  const char* const told = std::getenv("FAKE_CUDA_ATTRIBUTES");
  const std::string text = told == nullptr ? "" : std::string(",") + told;
  const std::string name = fmt::format(",{}=", attribute);
  const size_t at = text.find(name);
  if (at != std::string::npos) *value = std::atoi(text.c_str() + at + name.size());
  return at != std::string::npos;
}

}  // namespace

extern "C" {

ridge::test::FakeCuda* fake_cuda() { return &machine(); }

// --- the driver and its devices

int cuDriverGetVersion(int* version) {
  return called("cuDriverGetVersion", CallKind::kBare, [&](FakeMachine& fake, std::string&) {
    *version = fake.version;
    return kSuccess;
  });
}

int cuInit(unsigned flags) {
  return called("cuInit", CallKind::kBare, [&](FakeMachine& fake, std::string&) -> int {
    if (flags != 0) return kInvalidValue;
    if (fake.devices == 0) return kNoDevice;
    fake.is_started = true;
    return kSuccess;
  });
}

// Neither counted nor in the log: nothing of the device depends on them.
int cuGetErrorName(int code, const char** name) { return describe(code, name, &ErrorText::name); }
int cuGetErrorString(int code, const char** text) { return describe(code, text, &ErrorText::text); }

int cuDeviceGetCount(int* count) {
  return called("cuDeviceGetCount", CallKind::kBare, [&](FakeMachine& fake, std::string&) -> int {
    *count = fake.devices;
    return fake.is_started ? kSuccess : kNotInitialized;
  });
}

int cuDeviceGet(int* device, int ordinal) {
  return called("cuDeviceGet", CallKind::kBare, [&](FakeMachine& fake, std::string&) -> int {
    *device = ordinal;
    return is_device(fake, ordinal) ? kSuccess : kInvalidDevice;
  });
}

int cuDeviceGetName(char* name, int length, int device) {
  return called("cuDeviceGetName", CallKind::kBare, [&](FakeMachine& fake, std::string&) -> int {
    if (!is_device(fake, device) || length < 1) return kInvalidValue;
    std::strncpy(name, fake.device_name.c_str(), static_cast<size_t>(length));
    return kSuccess;
  });
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  return called("cuDeviceGetUuid_v2", CallKind::kBare, [&](FakeMachine& fake, std::string&) -> int {
    if (!is_device(fake, device)) return kInvalidDevice;
    for (unsigned i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(0xf0 + i);
    uuid[15] = static_cast<unsigned char>(device);
    return kSuccess;
  });
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  return called(
      "cuDeviceTotalMem_v2", CallKind::kBare, [&](FakeMachine& fake, std::string&) -> int {
        *bytes = fake.memory_bytes;
        return is_device(fake, device) ? kSuccess : kInvalidDevice;
      });
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (is_told(attribute, value)) return kSuccess;
  return called("cuDeviceGetAttribute", CallKind::kBare, [&](FakeMachine& fake, std::string& line) {
    line += fmt::format(" {}", attribute);
    if (!is_device(fake, device)) return int{kInvalidDevice};
    const std::map<int, int> values = {{16, 132},
                                       {38, 50 << 20},
                                       {40, 3},
                                       {75, fake.major},
                                       {76, fake.minor},
                                       {81, 228 << 10},
                                       {82, 1 << 16},
                                       {97, 227 << 10},
                                       {111, 1 << 10}};
    const auto found = values.find(attribute);
    if (found == values.end()) return int{kInvalidValue};
    *value = found->second;
    return int{kSuccess};
  });
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  return called("cuDevicePrimaryCtxRetain", CallKind::kBare, [&](FakeMachine& fake, std::string&) {
    if (!fake.is_started) return int{kNotInitialized};
    if (!is_device(fake, device)) return int{kInvalidDevice};
    if (fake.lost != 0) return fake.lost;
    *context = &++fake.retained[device];
    return int{kSuccess};
  });
}

// The device is as new when its last context is gone, and what lives there would be gone too.
int cuDevicePrimaryCtxRelease_v2(int device) {
  return called(
      "cuDevicePrimaryCtxRelease_v2", CallKind::kReleases, [&](FakeMachine& fake, std::string&) {
        const auto found = fake.retained.find(device);
        if (found == fake.retained.end()) {
          fake.add_fault("a context was released that nobody holds");
          return int{kInvalidContext};
        }
        if (--found->second == 0) fake.retained.erase(found);
        if (fake.retained.empty() && !fake.live().empty())
          fake.add_fault("the context went before " + fake.live().front());
        return int{kSuccess};
      });
}

int cuCtxSetCurrent(void* context) {
  return called("cuCtxSetCurrent", CallKind::kBare, [&](FakeMachine&, std::string&) {
    has_context() = context != nullptr;
    return kSuccess;
  });
}

int cuCtxSynchronize() {
  return called("cuCtxSynchronize", CallKind::kUsual, [&](FakeMachine& fake, std::string&) {
    if (const int code = fake.refuse_in_capture(); code != kSuccess) return code;
    fake.drain_all();
    return fake.lost;
  });
}

// --- memory

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  return called("cuMemGetInfo_v2", CallKind::kUsual, [&](FakeMachine& fake, std::string&) {
    *free = fake.memory_bytes - std::min(fake.used_bytes(), fake.memory_bytes);
    *total = fake.memory_bytes;
    return kSuccess;
  });
}

int cuMemAlloc_v2(Address* memory, size_t bytes) {
  return called("cuMemAlloc_v2", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    line += fmt::format(" {} bytes", bytes);
    if (const int code = fake.refuse_in_capture(); code != kSuccess) return code;
    if (bytes == 0) return int{kInvalidValue};
    void* const made = fake.allocate(bytes, false);
    if (made == nullptr) return int{kOutOfMemory};
    *memory = reinterpret_cast<Address>(made);
    line += " = " + fake.name_of(made);
    return int{kSuccess};
  });
}

int cuMemFree_v2(Address memory) {
  return called("cuMemFree_v2", CallKind::kDestroys, [&](FakeMachine& fake, std::string& line) {
    line += " " + fake.name_of(pointer(memory));
    return fake.release(pointer(memory), false);
  });
}

int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  return called("cuMemHostAlloc", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    line += fmt::format(" {} bytes", bytes);
    if (const int code = fake.refuse_in_capture(); code != kSuccess) return code;
    if (bytes == 0) return int{kInvalidValue};
    *memory = fake.allocate(bytes, true);
    if (*memory == nullptr) return int{kOutOfMemory};
    line += " = " + fake.name_of(*memory);
    return int{kSuccess};
  });
}

int cuMemFreeHost(void* memory) {
  return called("cuMemFreeHost", CallKind::kDestroys, [&](FakeMachine& fake, std::string& line) {
    line += " " + fake.name_of(memory);
    return fake.release(memory, true);
  });
}

// --- streams and events

int cuStreamCreate(void** stream, unsigned flags) {
  return called("cuStreamCreate", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    if (flags > 1) return int{kInvalidValue};
    *stream = fake.make(fake.streams, "stream");
    line += " = " + fake.name_of(*stream);
    return int{kSuccess};
  });
}

int cuStreamDestroy_v2(void* handle) {
  return called(
      "cuStreamDestroy_v2", CallKind::kDestroys, [&](FakeMachine& fake, std::string& line) {
        line += " " + fake.name_of(handle);
        FakeStream* const stream = fake.find(fake.streams, handle, "stream");
        if (stream == nullptr) return int{kInvalidHandle};
        if (stream->capture != nullptr) fake.add_fault("a capturing stream was destroyed");
        fake.drain(*stream);
        fake.streams.erase(handle);
        fake.forget_name(handle);
        return int{kSuccess};
      });
}

int cuStreamSynchronize(void* handle) {
  return called("cuStreamSynchronize", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    line += " " + fake.name_of(handle);
    FakeStream* const stream = fake.find(fake.streams, handle, "stream");
    if (stream == nullptr) return int{kInvalidHandle};
    if (stream->capture != nullptr) {
      stream->capture->is_invalid = true;
      return int{kCaptureUnsupported};
    }
    fake.drain(*stream);
    return fake.lost;
  });
}

int cuStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  return called("cuStreamWaitEvent", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    line += fmt::format(" {} {}", fake.name_of(handle), fake.name_of(event_handle));
    FakeStream* const stream = fake.find(fake.streams, handle, "stream");
    FakeEvent* const event = fake.find(fake.events, event_handle, "event");
    if (stream == nullptr || event == nullptr) return int{kInvalidHandle};
    return fake.wait(*stream, *event);
  });
}

int cuEventCreate(void** event, unsigned flags) {
  return called("cuEventCreate", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    FakeEvent* const made = fake.make(fake.events, "event");
    made->keeps_time = (flags & 2) == 0;
    *event = made;
    line += " = " + fake.name_of(made);
    return kSuccess;
  });
}

int cuEventDestroy_v2(void* event) {
  return called(
      "cuEventDestroy_v2", CallKind::kDestroys, [&](FakeMachine& fake, std::string& line) {
        line += " " + fake.name_of(event);
        if (fake.find(fake.events, event, "event") == nullptr) return int{kInvalidHandle};
        fake.events.erase(event);
        fake.forget_name(event);
        return int{kSuccess};
      });
}

int cuEventRecord(void* event_handle, void* handle) {
  return called("cuEventRecord", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    line += fmt::format(" {} {}", fake.name_of(event_handle), fake.name_of(handle));
    FakeStream* const stream = fake.find(fake.streams, handle, "stream");
    FakeEvent* const event = fake.find(fake.events, event_handle, "event");
    if (stream == nullptr || event == nullptr) return int{kInvalidHandle};
    return fake.record(*event, *stream);
  });
}

int cuEventQuery(void* handle) {
  return called("cuEventQuery", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    line += " " + fake.name_of(handle);
    const FakeEvent* const event = fake.find(fake.events, handle, "event");
    if (event == nullptr) return int{kInvalidHandle};
    if (event->capture != nullptr) {
      event->capture->is_invalid = true;
      return int{kCapturedEvent};
    }
    return event->last != nullptr && !event->last->is_done ? int{kNotReady} : fake.lost;
  });
}

int cuEventSynchronize(void* handle) {
  return called("cuEventSynchronize", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    line += " " + fake.name_of(handle);
    if (const int code = fake.refuse_in_capture(); code != kSuccess) return code;
    const FakeEvent* const event = fake.find(fake.events, handle, "event");
    if (event == nullptr) return int{kInvalidHandle};
    if (event->last != nullptr) fake.finish(event->last);
    return fake.lost;
  });
}

int cuEventElapsedTime(float* milliseconds, void* from_handle, void* to_handle) {
  return called("cuEventElapsedTime", CallKind::kUsual, [&](FakeMachine& fake, std::string&) {
    const FakeEvent* const from = fake.find(fake.events, from_handle, "event");
    const FakeEvent* const to = fake.find(fake.events, to_handle, "event");
    if (from == nullptr || to == nullptr || from->last == nullptr || to->last == nullptr ||
        !from->keeps_time || !to->keeps_time)
      return int{kInvalidHandle};
    if (!from->last->is_done || !to->last->is_done) return int{kNotReady};
    *milliseconds = static_cast<float>(to->last->milliseconds - from->last->milliseconds);
    return int{kSuccess};
  });
}

// --- captured graphs

int cuStreamBeginCapture_v2(void* handle, int mode) {
  return called(
      "cuStreamBeginCapture_v2", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
        line += " " + fake.name_of(handle);
        FakeStream* const stream = fake.find(fake.streams, handle, "stream");
        if (stream == nullptr) return int{kInvalidHandle};
        return mode == 1 ? fake.begin_capture(*stream) : int{kInvalidValue};
      });
}

// What it returns goes on where the capture failed: the stream takes work again.
int cuStreamEndCapture(void* handle, void** graph) {
  *graph = nullptr;
  return called(
      "cuStreamEndCapture", CallKind::kDestroys, [&](FakeMachine& fake, std::string& line) {
        line += " " + fake.name_of(handle);
        FakeStream* const stream = fake.find(fake.streams, handle, "stream");
        if (stream == nullptr) return int{kInvalidHandle};
        FakeGraph captured;
        if (const int code = fake.end_capture(*stream, captured); code != kSuccess) return code;
        FakeGraph* const made = fake.make(fake.graphs, "graph");
        *made = std::move(captured);
        *graph = made;
        line += " = " + fake.name_of(made);
        return int{kSuccess};
      });
}

int cuGraphGetNodes(void* handle, void** nodes, size_t* count) {
  return called("cuGraphGetNodes", CallKind::kUsual, [&](FakeMachine& fake, std::string&) {
    const FakeGraph* const graph = fake.find(fake.graphs, handle, "graph");
    if (graph == nullptr || nodes != nullptr) return int{kInvalidValue};
    *count = graph->size();
    return int{kSuccess};
  });
}

int cuGraphInstantiateWithFlags(void** exec, void* handle, unsigned long long) {
  return called(
      "cuGraphInstantiateWithFlags", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
        const FakeGraph* const graph = fake.find(fake.graphs, handle, "graph");
        if (graph == nullptr) return int{kInvalidValue};
        if (!fake.has_room(exec_bytes(*graph))) return int{kOutOfMemory};
        FakeGraph* const made = fake.make(fake.execs, "exec");
        *made = *graph;
        *exec = made;
        line += fmt::format(" {} = {} of {} nodes{}",
                            fake.name_of(handle),
                            fake.name_of(made),
                            graph->size(),
                            is_row(*graph) ? " in a row" : "");
        return int{kSuccess};
      });
}

int cuGraphLaunch(void* handle, void* stream_handle) {
  return called("cuGraphLaunch", CallKind::kUsual, [&](FakeMachine& fake, std::string& line) {
    line += fmt::format(" {} {}", fake.name_of(handle), fake.name_of(stream_handle));
    const FakeGraph* const exec = fake.find(fake.execs, handle, "exec");
    FakeStream* const stream = fake.find(fake.streams, stream_handle, "stream");
    if (exec == nullptr || stream == nullptr) return int{kInvalidHandle};
    return fake.enqueue(*stream, [&fake, graph = *exec] { return fake.run_graph(graph); });
  });
}

int cuGraphDestroy(void* graph) {
  return called("cuGraphDestroy", CallKind::kDestroys, [&](FakeMachine& fake, std::string& line) {
    line += " " + fake.name_of(graph);
    if (fake.find(fake.graphs, graph, "graph") == nullptr) return int{kInvalidValue};
    fake.graphs.erase(graph);
    fake.forget_name(graph);
    return int{kSuccess};
  });
}

int cuGraphExecDestroy(void* exec) {
  return called(
      "cuGraphExecDestroy", CallKind::kDestroys, [&](FakeMachine& fake, std::string& line) {
        line += " " + fake.name_of(exec);
        if (fake.find(fake.execs, exec, "exec") == nullptr) return int{kInvalidValue};
        fake.execs.erase(exec);
        fake.forget_name(exec);
        return int{kSuccess};
      });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
