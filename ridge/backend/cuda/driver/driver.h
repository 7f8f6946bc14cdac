// NVIDIA's driver, opened at run time: the one place where its functions are found and its errors
// become ours. Nothing of CUDA is linked.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "ridge/backend/cuda/driver/driver_api.h"
#include "ridge/base/error.h"

namespace ridge::cuda {

/// The kind of a failed call, by the cure that the caller has.
enum class Trouble {
  kOther,
  kOutOfMemory,  ///< Less may still fit; the device is fine.
  kDeviceLost,   ///< Each further call in this process fails too.
};

Trouble trouble_of(Result result);

/// The fix to suggest where no GPU is visible: it depends on CUDA_VISIBLE_DEVICES, which may hide
/// all of them.
std::string no_device_fix();

/// A call of the driver that failed. A UserError even where a kernel of Ridge was at fault: what
/// helps is the same, to start again from the last checkpoint.
class CudaError : public UserError {
 public:
  CudaError(const std::string& message, std::string fix, std::string call, Result result)
      : UserError(message, std::move(fix)), call_(std::move(call)), result_(result) {}
  const std::string& call() const { return call_; }
  Result result() const { return result_; }
  Trouble trouble() const { return trouble_of(result_); }

 private:
  std::string call_;
  Result result_;
};

/// How a call ended.
struct [[nodiscard]] Status {
  const char* call;
  Result result;
  bool ok() const { return result == Result::kSuccess; }
};

/// The driver's shared object.
class DriverLibrary {
 public:
  /// UserError when it cannot be opened.
  explicit DriverLibrary(std::string name);
  DriverLibrary(const DriverLibrary&) = delete;
  DriverLibrary& operator=(const DriverLibrary&) = delete;
  /// Null where this version of the driver has no such function; the first such is kept.
  void* find(const char* function);
  const std::string& name() const { return name_; }
  const std::string& missing() const { return missing_; }

 private:
  std::string name_, missing_;
  void* handle_;
};

/// One function of the driver.
template <typename... Args>
class Call {
 public:
  Call(DriverLibrary& library, const char* name)
      : name_(name), function_(reinterpret_cast<Function*>(library.find(name))) {}
  Status operator()(Args... args) const { return {name_, function_(args...)}; }
  bool is_there() const { return function_ != nullptr; }

 private:
  using Function = Result(Args...);
  const char* name_;
  Function* function_;
};

/// The functions that Ridge calls, by the driver's names without `cu` and version.
struct Driver {
  /// Opens and starts it. UserError when there is none, when it is older than 12.0 or lacks a
  /// function; CudaError when it does not start (no GPU, a driver that fits no kernel module).
  explicit Driver(const std::string& name);

  /// $RIDGE_CUDA_DRIVER, or the name under which NVIDIA's driver installs itself.
  static std::string default_name();

  /// Throws CudaError unless the call succeeded. The text says with what it was called; it is
  /// made only then.
  void check(Status status) const {
    if (!status.ok()) [[unlikely]]
      fail(status, {});
  }
  template <typename... Args>
  void check(Status status, fmt::format_string<Args...> with, Args&&... args) const {
    if (!status.ok()) [[unlikely]]
      fail(status, fmt::format(with, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail(Status status, const std::string& with) const;

  /// "13.0".
  std::string version_text() const;

  DriverLibrary library;
  int version = 0;  ///< 1000 * major + 10 * minor, of CUDA.

  Call<int*> driver_get_version{library, "cuDriverGetVersion"};
  Call<unsigned> init{library, "cuInit"};
  Call<Result, const char**> get_error_name{library, "cuGetErrorName"};
  Call<Result, const char**> get_error_string{library, "cuGetErrorString"};

  Call<int*> device_get_count{library, "cuDeviceGetCount"};
  Call<int*, int> device_get{library, "cuDeviceGet"};
  Call<char*, int, int> device_get_name{library, "cuDeviceGetName"};
  Call<DeviceUuid*, int> device_get_uuid{library, "cuDeviceGetUuid_v2"};
  Call<size_t*, int> device_total_mem{library, "cuDeviceTotalMem_v2"};
  Call<int*, DeviceAttribute, int> device_get_attribute{library, "cuDeviceGetAttribute"};
  Call<ContextHandle*, int> primary_ctx_retain{library, "cuDevicePrimaryCtxRetain"};
  Call<int> primary_ctx_release{library, "cuDevicePrimaryCtxRelease_v2"};
  Call<ContextHandle> ctx_set_current{library, "cuCtxSetCurrent"};
  Call<> ctx_synchronize{library, "cuCtxSynchronize"};

  Call<size_t*, size_t*> mem_get_info{library, "cuMemGetInfo_v2"};
  Call<DevicePointer*, size_t> mem_alloc{library, "cuMemAlloc_v2"};
  Call<DevicePointer> mem_free{library, "cuMemFree_v2"};
  Call<void**, size_t, unsigned> mem_host_alloc{library, "cuMemHostAlloc"};
  Call<void*> mem_free_host{library, "cuMemFreeHost"};
  Call<DevicePointer, const void*, size_t, StreamHandle> memcpy_htod_async{library,
                                                                           "cuMemcpyHtoDAsync_v2"};
  Call<void*, DevicePointer, size_t, StreamHandle> memcpy_dtoh_async{library,
                                                                     "cuMemcpyDtoHAsync_v2"};
  Call<DevicePointer, DevicePointer, size_t, StreamHandle> memcpy_dtod_async{
      library, "cuMemcpyDtoDAsync_v2"};
  Call<DevicePointer, unsigned char, size_t, StreamHandle> memset_d8_async{library,
                                                                           "cuMemsetD8Async"};

  Call<StreamHandle*, unsigned> stream_create{library, "cuStreamCreate"};
  Call<StreamHandle> stream_destroy{library, "cuStreamDestroy_v2"};
  Call<StreamHandle> stream_synchronize{library, "cuStreamSynchronize"};
  Call<StreamHandle, EventHandle, unsigned> stream_wait_event{library, "cuStreamWaitEvent"};
  Call<EventHandle*, unsigned> event_create{library, "cuEventCreate"};
  Call<EventHandle> event_destroy{library, "cuEventDestroy_v2"};
  Call<EventHandle, StreamHandle> event_record{library, "cuEventRecord"};
  Call<EventHandle> event_query{library, "cuEventQuery"};
  Call<EventHandle> event_synchronize{library, "cuEventSynchronize"};
  Call<float*, EventHandle, EventHandle> event_elapsed_time{library, "cuEventElapsedTime"};

  Call<ModuleHandle*, const void*, unsigned, JitOption*, void**> module_load_data{
      library, "cuModuleLoadDataEx"};
  Call<ModuleHandle> module_unload{library, "cuModuleUnload"};
  Call<FunctionHandle*, ModuleHandle, const char*> module_get_function{library,
                                                                       "cuModuleGetFunction"};
  Call<int*, FunctionAttribute, FunctionHandle> func_get_attribute{library, "cuFuncGetAttribute"};
  Call<FunctionHandle, FunctionAttribute, int> func_set_attribute{library, "cuFuncSetAttribute"};
  Call<FunctionHandle,
       unsigned,
       unsigned,
       unsigned,
       unsigned,
       unsigned,
       unsigned,
       unsigned,
       StreamHandle,
       void**,
       void**>
      launch_kernel{library, "cuLaunchKernel"};

  Call<StreamHandle, CaptureMode> stream_begin_capture{library, "cuStreamBeginCapture_v2"};
  Call<StreamHandle, GraphHandle*> stream_end_capture{library, "cuStreamEndCapture"};
  Call<GraphHandle, GraphNodeHandle*, size_t*> graph_get_nodes{library, "cuGraphGetNodes"};
  Call<GraphExecHandle*, GraphHandle, unsigned long long> graph_instantiate{
      library, "cuGraphInstantiateWithFlags"};
  Call<GraphExecHandle, StreamHandle> graph_launch{library, "cuGraphLaunch"};
  Call<GraphHandle> graph_destroy{library, "cuGraphDestroy"};
  Call<GraphExecHandle> graph_exec_destroy{library, "cuGraphExecDestroy"};

 private:
  void check_version();
};

/// The driver, opened; kept by all that was made with it.
using DriverRef = std::shared_ptr<const Driver>;

}  // namespace ridge::cuda
