// What driver_api.h and driver.h write down, against NVIDIA's own header, where one is installed:
// the compiler holds it.
#include <gtest/gtest.h>

#ifdef RIDGE_TEST_CUDA_HEADER
#include <cuda.h>

#include "ridge/backend/cuda/driver.h"
#include "tests/backend/cuda/passed_alike.h"

namespace ridge::cuda {
namespace {

template <typename Theirs>
struct Function;
template <typename... Theirs>
struct Function<CUresult (*)(Theirs...)> {
  template <typename... Ours>
  static constexpr bool is(Call<Ours...> Driver::*) {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs))
      return (test::is_passed_alike<Ours, Theirs>() && ...);
    return false;
  }
};

// The header's names without version are macros for those with one.
static_assert(Function<decltype(&cuDriverGetVersion)>::is(&Driver::driver_get_version));
static_assert(Function<decltype(&cuInit)>::is(&Driver::init));
static_assert(Function<decltype(&cuGetErrorName)>::is(&Driver::get_error_name));
static_assert(Function<decltype(&cuGetErrorString)>::is(&Driver::get_error_string));
static_assert(Function<decltype(&cuDeviceGetCount)>::is(&Driver::device_get_count));
static_assert(Function<decltype(&cuDeviceGet)>::is(&Driver::device_get));
static_assert(Function<decltype(&cuDeviceGetName)>::is(&Driver::device_get_name));
static_assert(Function<decltype(&cuDeviceGetUuid_v2)>::is(&Driver::device_get_uuid));
static_assert(sizeof(DeviceUuid) == sizeof(CUuuid));
static_assert(Function<decltype(&cuDeviceTotalMem_v2)>::is(&Driver::device_total_mem));
static_assert(Function<decltype(&cuDeviceGetAttribute)>::is(&Driver::device_get_attribute));
static_assert(Function<decltype(&cuDevicePrimaryCtxRetain)>::is(&Driver::primary_ctx_retain));
static_assert(Function<decltype(&cuDevicePrimaryCtxRelease_v2)>::is(&Driver::primary_ctx_release));
static_assert(Function<decltype(&cuCtxSetCurrent)>::is(&Driver::ctx_set_current));
static_assert(Function<decltype(&cuCtxSynchronize)>::is(&Driver::ctx_synchronize));
static_assert(Function<decltype(&cuMemGetInfo_v2)>::is(&Driver::mem_get_info));
static_assert(Function<decltype(&cuMemAlloc_v2)>::is(&Driver::mem_alloc));
static_assert(Function<decltype(&cuMemFree_v2)>::is(&Driver::mem_free));
static_assert(Function<decltype(&cuMemHostAlloc)>::is(&Driver::mem_host_alloc));
static_assert(Function<decltype(&cuMemFreeHost)>::is(&Driver::mem_free_host));
static_assert(Function<decltype(&cuMemcpyHtoDAsync_v2)>::is(&Driver::memcpy_htod_async));
static_assert(Function<decltype(&cuMemcpyDtoHAsync_v2)>::is(&Driver::memcpy_dtoh_async));
static_assert(Function<decltype(&cuMemcpyDtoDAsync_v2)>::is(&Driver::memcpy_dtod_async));
static_assert(Function<decltype(&cuMemsetD8Async)>::is(&Driver::memset_d8_async));
static_assert(Function<decltype(&cuStreamCreate)>::is(&Driver::stream_create));
static_assert(Function<decltype(&cuStreamDestroy_v2)>::is(&Driver::stream_destroy));
static_assert(Function<decltype(&cuStreamSynchronize)>::is(&Driver::stream_synchronize));
static_assert(Function<decltype(&cuStreamWaitEvent)>::is(&Driver::stream_wait_event));
static_assert(Function<decltype(&cuEventCreate)>::is(&Driver::event_create));
static_assert(Function<decltype(&cuEventDestroy_v2)>::is(&Driver::event_destroy));
static_assert(Function<decltype(&cuEventRecord)>::is(&Driver::event_record));
static_assert(Function<decltype(&cuEventQuery)>::is(&Driver::event_query));
static_assert(Function<decltype(&cuEventSynchronize)>::is(&Driver::event_synchronize));
static_assert(Function<decltype(&cuEventElapsedTime)>::is(&Driver::event_elapsed_time));
static_assert(Function<decltype(&cuModuleLoadDataEx)>::is(&Driver::module_load_data));
static_assert(Function<decltype(&cuModuleUnload)>::is(&Driver::module_unload));
static_assert(Function<decltype(&cuModuleGetFunction)>::is(&Driver::module_get_function));
static_assert(Function<decltype(&cuFuncGetAttribute)>::is(&Driver::func_get_attribute));
static_assert(Function<decltype(&cuFuncSetAttribute)>::is(&Driver::func_set_attribute));
static_assert(Function<decltype(&cuLaunchKernel)>::is(&Driver::launch_kernel));
static_assert(Function<decltype(&cuStreamBeginCapture_v2)>::is(&Driver::stream_begin_capture));
static_assert(Function<decltype(&cuStreamEndCapture)>::is(&Driver::stream_end_capture));
static_assert(Function<decltype(&cuGraphGetNodes)>::is(&Driver::graph_get_nodes));
static_assert(Function<decltype(&cuGraphInstantiateWithFlags)>::is(&Driver::graph_instantiate));
static_assert(Function<decltype(&cuGraphLaunch)>::is(&Driver::graph_launch));
static_assert(Function<decltype(&cuGraphDestroy)>::is(&Driver::graph_destroy));
static_assert(Function<decltype(&cuGraphExecDestroy)>::is(&Driver::graph_exec_destroy));
static_assert(!Function<decltype(&cuMemAlloc_v2)>::is(&Driver::mem_free));  // it can fail

constexpr bool is(Result ours, CUresult theirs) { return static_cast<int>(ours) == theirs; }
static_assert(is(Result::kSuccess, CUDA_SUCCESS));
static_assert(is(Result::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(is(Result::kStubLibrary, CUDA_ERROR_STUB_LIBRARY));
static_assert(is(Result::kDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE));
static_assert(is(Result::kNoDevice, CUDA_ERROR_NO_DEVICE));
static_assert(is(Result::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU));
static_assert(is(Result::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE));
static_assert(is(Result::kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE));
static_assert(is(Result::kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
static_assert(is(Result::kContained, CUDA_ERROR_CONTAINED));
static_assert(is(Result::kNotReady, CUDA_ERROR_NOT_READY));
static_assert(is(Result::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(is(Result::kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT));
static_assert(is(Result::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED));
static_assert(is(Result::kAssert, CUDA_ERROR_ASSERT));
static_assert(is(Result::kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR));
static_assert(is(Result::kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION));
static_assert(is(Result::kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS));
static_assert(is(Result::kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE));
static_assert(is(Result::kInvalidPc, CUDA_ERROR_INVALID_PC));
static_assert(is(Result::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED));
static_assert(is(Result::kTensorMemoryLeak, CUDA_ERROR_TENSOR_MEMORY_LEAK));
static_assert(is(Result::kSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY));
static_assert(is(Result::kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH));
static_assert(is(Result::kCompatNotSupported, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE));
static_assert(is(Result::kMpsClientTerminated, CUDA_ERROR_MPS_CLIENT_TERMINATED));
static_assert(is(Result::kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
static_assert(is(Result::kCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
static_assert(is(Result::kExternalDevice, CUDA_ERROR_EXTERNAL_DEVICE));

constexpr bool is(DeviceAttribute ours, CUdevice_attribute theirs) {
  return static_cast<int>(ours) == theirs;
}
static_assert(is(DeviceAttribute::kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(is(DeviceAttribute::kL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
static_assert(is(DeviceAttribute::kCopyEngines, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT));
static_assert(is(DeviceAttribute::kMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(is(DeviceAttribute::kMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(is(DeviceAttribute::kSharedPerBlock,
                 CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
static_assert(is(DeviceAttribute::kSharedPerMultiprocessor,
                 CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
static_assert(is(DeviceAttribute::kSharedReserved,
                 CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK));
static_assert(is(DeviceAttribute::kRegistersPerMultiprocessor,
                 CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR));

constexpr bool is(FunctionAttribute ours, CUfunction_attribute theirs) {
  return static_cast<int>(ours) == theirs;
}
static_assert(is(FunctionAttribute::kMostThreads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
static_assert(is(FunctionAttribute::kStaticSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
static_assert(is(FunctionAttribute::kLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
static_assert(is(FunctionAttribute::kRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS));
static_assert(is(FunctionAttribute::kDynamicSharedBytes,
                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));

static_assert(static_cast<int>(JitOption::kErrorLog) == CU_JIT_ERROR_LOG_BUFFER);
static_assert(static_cast<int>(JitOption::kErrorLogBytes) == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
static_assert(static_cast<int>(CaptureMode::kThreadLocal) == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);

TEST(CudaHeader, AgreesWithOurs) { EXPECT_GE(CUDA_VERSION, 13000); }

}  // namespace
}  // namespace ridge::cuda
#else
TEST(CudaHeader, AgreesWithOurs) { GTEST_SKIP() << "no cuda.h here: ./dev peers brings one"; }
#endif
