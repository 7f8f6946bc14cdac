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
     "system has unsupported display driver / cuda driver combination"},
    {900,
     "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901,
     "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
};

int describe(int code, const char** text, const char* ErrorText::* member) {
  *text = nullptr;
  for (const ErrorText& error : kErrors)
    if (error.code == code) *text = error.*member;
  return *text == nullptr ? kInvalidValue : kSuccess;
}

void require_device(const FakeMachine& fake, int device) {
  require(device >= 0 && device < fake.devices, kInvalidDevice);
}

// Whether each piece runs right after the one that was captured before it.
bool is_row(const FakeGraph& graph) {
  for (size_t i = 0; i < graph.size(); ++i)
    if (graph[i].after != (i == 0 ? std::set<size_t>{} : std::set<size_t>{i - 1})) return false;
  return true;
}

// Reads an attribute from the environment, as "16=108,97=166912"; false: it says nothing of it.
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
  return bare(__func__, [&](FakeMachine& fake, std::string&) { *version = fake.version; });
}

int cuInit(unsigned flags) {
  return bare(__func__, [&](FakeMachine& fake, std::string&) {
    require(flags == 0, kInvalidValue);
    require(fake.devices > 0, kNoDevice);
    fake.is_started = true;
  });
}

// Neither counted nor in the log: nothing of the device depends on them.
int cuGetErrorName(int code, const char** name) { return describe(code, name, &ErrorText::name); }
int cuGetErrorString(int code, const char** text) { return describe(code, text, &ErrorText::text); }

int cuDeviceGetCount(int* count) {
  return bare(__func__, [&](FakeMachine& fake, std::string&) {
    *count = fake.devices;
    require(fake.is_started, kNotInitialized);
  });
}

int cuDeviceGet(int* device, int ordinal) {
  return bare(__func__, [&](FakeMachine& fake, std::string&) {
    require_device(fake, ordinal);
    *device = ordinal;
  });
}

int cuDeviceGetName(char* name, int length, int device) {
  return bare(__func__, [&](FakeMachine& fake, std::string&) {
    require_device(fake, device);
    require(length > 0, kInvalidValue);
    std::strncpy(name, fake.device_name.c_str(), static_cast<size_t>(length));
  });
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  return bare(__func__, [&](FakeMachine& fake, std::string&) {
    require_device(fake, device);
    for (unsigned i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(0xf0 + i);
    uuid[15] = static_cast<unsigned char>(device);
  });
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  return bare(__func__, [&](FakeMachine& fake, std::string&) {
    require_device(fake, device);
    *bytes = fake.memory_bytes;
  });
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (is_told(attribute, value)) return kSuccess;
  return bare(__func__, [&](FakeMachine& fake, std::string& line) {
    line += fmt::format(" {}", attribute);
    require_device(fake, device);
    const std::map<int, int> values = {{16, 132},
                                       {38, 50 << 20},
                                       {40, 3},
                                       {75, fake.major},
                                       {76, fake.minor},
                                       {81, 228 << 10},
                                       {97, 227 << 10},
                                       {111, 1 << 10}};
    const auto found = values.find(attribute);
    require(found != values.end(), kInvalidValue);
    *value = found->second;
  });
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  return bare(__func__, [&](FakeMachine& fake, std::string&) {
    require(fake.is_started, kNotInitialized);
    require_device(fake, device);
    require(fake.lost == 0, fake.lost);
    *context = &++fake.retained[device];
  });
}

// The device is as new when its last context is gone, and what lives there would be gone too.
int cuDevicePrimaryCtxRelease_v2(int device) {
  return called(__func__, false, true, [&](FakeMachine& fake, std::string&) {
    const auto found = fake.retained.find(device);
    if (found == fake.retained.end()) fake.add_fault("a context was released that nobody holds");
    require(found != fake.retained.end(), kInvalidContext);
    if (--found->second == 0) fake.retained.erase(found);
    if (fake.retained.empty() && !fake.live().empty())
      fake.add_fault("the context went before " + fake.live().front());
  });
}

int cuCtxSetCurrent(void* context) {
  return bare(__func__, [&](FakeMachine&, std::string&) { has_context() = context != nullptr; });
}

int cuCtxSynchronize() {
  return usual(__func__, [&](FakeMachine& fake, std::string&) {
    fake.refuse_in_capture();
    fake.drain_all();
    return fake.lost;
  });
}

// --- memory

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  return usual(__func__, [&](FakeMachine& fake, std::string&) {
    *free = fake.memory_bytes - std::min(fake.used_bytes(), fake.memory_bytes);
    *total = fake.memory_bytes;
  });
}

int cuMemAlloc_v2(Address* memory, size_t bytes) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    *memory = reinterpret_cast<Address>(fake.allocate(bytes, false, line));
  });
}

int cuMemFree_v2(Address memory) {
  return destroys(__func__, [&](FakeMachine& fake, std::string& line) {
    fake.release(pointer(memory), false, line);
  });
}

int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    *memory = fake.allocate(bytes, true, line);
  });
}

int cuMemFreeHost(void* memory) {
  return destroys(__func__,
                  [&](FakeMachine& fake, std::string& line) { fake.release(memory, true, line); });
}

// --- streams and events

int cuStreamCreate(void** stream, unsigned flags) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    require(flags <= 1, kInvalidValue);
    *stream = fake.make(fake.streams, line);
  });
}

int cuStreamDestroy_v2(void* handle) {
  return destroys(__func__, [&](FakeMachine& fake, std::string& line) {
    FakeStream& stream = fake.find(fake.streams, handle, line);
    if (stream.capture != nullptr) fake.add_fault("a capturing stream was destroyed");
    fake.drain(stream);
    fake.streams.erase(handle);
    fake.forget_name(handle);
  });
}

int cuStreamSynchronize(void* handle) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    FakeStream& stream = fake.find(fake.streams, handle, line);
    if (stream.capture != nullptr) stream.capture->is_invalid = true;
    require(stream.capture == nullptr, kCaptureUnsupported);
    fake.drain(stream);
    return fake.lost;
  });
}

int cuStreamWaitEvent(void* handle, void* event, unsigned) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    FakeStream& stream = fake.find(fake.streams, handle, line);
    fake.wait(stream, fake.find(fake.events, event, line));
  });
}

int cuEventCreate(void** event, unsigned flags) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    FakeEvent* const made = fake.make(fake.events, line);
    made->keeps_time = (flags & 2) == 0;
    *event = made;
  });
}

int cuEventDestroy_v2(void* event) { return destroys(__func__, &FakeMachine::events, event); }

int cuEventRecord(void* handle, void* stream) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    FakeEvent& event = fake.find(fake.events, handle, line);
    fake.record(event, fake.find(fake.streams, stream, line));
  });
}

int cuEventQuery(void* handle) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    const FakeEvent& event = fake.find(fake.events, handle, line);
    if (event.capture != nullptr) event.capture->is_invalid = true;
    require(event.capture == nullptr, kCapturedEvent);
    require(event.last == nullptr || event.last->is_done, kNotReady);
    return fake.lost;
  });
}

int cuEventSynchronize(void* handle) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    const FakeEvent& event = fake.find(fake.events, handle, line);
    fake.refuse_in_capture();
    if (event.last != nullptr) fake.finish(event.last);
    return fake.lost;
  });
}

int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    const FakeEvent &from = fake.find(fake.events, start, line),
                    &to = fake.find(fake.events, end, line);
    for (const FakeEvent* each : {&from, &to}) {
      require(each->last != nullptr && each->keeps_time, kInvalidHandle);
      require(each->last->is_done, kNotReady);
    }
    *milliseconds = static_cast<float>(to.last->milliseconds - from.last->milliseconds);
  });
}

// --- captured graphs

int cuStreamBeginCapture_v2(void* stream, int mode) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    require(mode == 1, kInvalidValue);
    fake.begin_capture(fake.find(fake.streams, stream, line));
  });
}

// The stream takes work again, also where the capture failed.
int cuStreamEndCapture(void* stream, void** graph) {
  *graph = nullptr;
  return destroys(__func__, [&](FakeMachine& fake, std::string& line) {
    FakeStream& captured = fake.find(fake.streams, stream, line);
    *graph = fake.make(fake.graphs, line, fake.end_capture(captured));
  });
}

int cuGraphGetNodes(void* graph, void** nodes, size_t* count) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    require(nodes == nullptr, kInvalidValue);
    *count = fake.find(fake.graphs, graph, line).size();
  });
}

int cuGraphInstantiateWithFlags(void** exec, void* handle, unsigned long long) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    const FakeGraph& graph = fake.find(fake.graphs, handle, line);
    require(fake.has_room(exec_bytes(graph)), kOutOfMemory);
    *exec = fake.make(fake.execs, line, graph);
    line += fmt::format(" of {} nodes{}", graph.size(), is_row(graph) ? " in a row" : "");
  });
}

int cuGraphLaunch(void* exec, void* stream) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    const FakeGraph& graph = fake.find(fake.execs, exec, line);
    fake.queue(fake.find(fake.streams, stream, line),
               [&fake, graph] { return fake.run_graph(graph); });
  });
}

int cuGraphDestroy(void* graph) { return destroys(__func__, &FakeMachine::graphs, graph); }
int cuGraphExecDestroy(void* exec) { return destroys(__func__, &FakeMachine::execs, exec); }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
