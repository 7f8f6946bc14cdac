// Compares driver_api.h and driver.h with NVIDIA's own header, where one is installed, while this
// file is compiled.
#include <gtest/gtest.h>

#ifdef RIDGE_TEST_CUDA_HEADER
#include <cuda.h>

#include "ridge/backend/cuda/driver/driver.h"
#include "tests/backend/cuda/vendor_header.h"

namespace ridge::cuda {
namespace {

// The header's names without version are macros for those with one.
RIDGE_CALL(Driver::driver_get_version, cuDriverGetVersion);
RIDGE_CALL(Driver::init, cuInit);
RIDGE_CALL(Driver::get_error_name, cuGetErrorName);
RIDGE_CALL(Driver::get_error_string, cuGetErrorString);
RIDGE_CALL(Driver::device_get_count, cuDeviceGetCount);
RIDGE_CALL(Driver::device_get, cuDeviceGet);
RIDGE_CALL(Driver::device_get_name, cuDeviceGetName);
RIDGE_CALL(Driver::device_get_uuid, cuDeviceGetUuid_v2);
static_assert(sizeof(DeviceUuid) == sizeof(CUuuid));
RIDGE_CALL(Driver::device_total_mem, cuDeviceTotalMem_v2);
RIDGE_CALL(Driver::device_get_attribute, cuDeviceGetAttribute);
RIDGE_CALL(Driver::primary_ctx_retain, cuDevicePrimaryCtxRetain);
RIDGE_CALL(Driver::primary_ctx_release, cuDevicePrimaryCtxRelease_v2);
RIDGE_CALL(Driver::ctx_set_current, cuCtxSetCurrent);
RIDGE_CALL(Driver::ctx_synchronize, cuCtxSynchronize);
RIDGE_CALL(Driver::mem_get_info, cuMemGetInfo_v2);
RIDGE_CALL(Driver::mem_alloc, cuMemAlloc_v2);
RIDGE_CALL(Driver::mem_free, cuMemFree_v2);
RIDGE_CALL(Driver::mem_host_alloc, cuMemHostAlloc);
RIDGE_CALL(Driver::mem_free_host, cuMemFreeHost);
RIDGE_CALL(Driver::memcpy_htod_async, cuMemcpyHtoDAsync_v2);
RIDGE_CALL(Driver::memcpy_dtoh_async, cuMemcpyDtoHAsync_v2);
RIDGE_CALL(Driver::memcpy_dtod_async, cuMemcpyDtoDAsync_v2);
RIDGE_CALL(Driver::memset_d8_async, cuMemsetD8Async);
RIDGE_CALL(Driver::stream_create, cuStreamCreate);
RIDGE_CALL(Driver::stream_destroy, cuStreamDestroy_v2);
RIDGE_CALL(Driver::stream_synchronize, cuStreamSynchronize);
RIDGE_CALL(Driver::stream_wait_event, cuStreamWaitEvent);
RIDGE_CALL(Driver::event_create, cuEventCreate);
RIDGE_CALL(Driver::event_destroy, cuEventDestroy_v2);
RIDGE_CALL(Driver::event_record, cuEventRecord);
RIDGE_CALL(Driver::event_query, cuEventQuery);
RIDGE_CALL(Driver::event_synchronize, cuEventSynchronize);
RIDGE_CALL(Driver::event_elapsed_time, cuEventElapsedTime);
RIDGE_CALL(Driver::module_load_data, cuModuleLoadDataEx);
RIDGE_CALL(Driver::module_unload, cuModuleUnload);
RIDGE_CALL(Driver::module_get_function, cuModuleGetFunction);
RIDGE_CALL(Driver::func_get_attribute, cuFuncGetAttribute);
RIDGE_CALL(Driver::func_set_attribute, cuFuncSetAttribute);
RIDGE_CALL(Driver::launch_kernel, cuLaunchKernel);
RIDGE_CALL(Driver::stream_begin_capture, cuStreamBeginCapture_v2);
RIDGE_CALL(Driver::stream_end_capture, cuStreamEndCapture);
RIDGE_CALL(Driver::graph_get_nodes, cuGraphGetNodes);
RIDGE_CALL(Driver::graph_instantiate, cuGraphInstantiateWithFlags);
RIDGE_CALL(Driver::graph_launch, cuGraphLaunch);
RIDGE_CALL(Driver::graph_destroy, cuGraphDestroy);
RIDGE_CALL(Driver::graph_exec_destroy, cuGraphExecDestroy);
static_assert(
    !test::Alike<decltype(Driver::mem_free), decltype(cuMemAlloc_v2)>::value);  // it can fail

RIDGE_IS(Result::kSuccess, CUDA_SUCCESS);
RIDGE_IS(Result::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
RIDGE_IS(Result::kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
RIDGE_IS(Result::kDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
RIDGE_IS(Result::kNoDevice, CUDA_ERROR_NO_DEVICE);
RIDGE_IS(Result::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
RIDGE_IS(Result::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
RIDGE_IS(Result::kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
RIDGE_IS(Result::kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
RIDGE_IS(Result::kContained, CUDA_ERROR_CONTAINED);
RIDGE_IS(Result::kNotReady, CUDA_ERROR_NOT_READY);
RIDGE_IS(Result::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
RIDGE_IS(Result::kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
RIDGE_IS(Result::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
RIDGE_IS(Result::kAssert, CUDA_ERROR_ASSERT);
RIDGE_IS(Result::kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
RIDGE_IS(Result::kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
RIDGE_IS(Result::kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
RIDGE_IS(Result::kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
RIDGE_IS(Result::kInvalidPc, CUDA_ERROR_INVALID_PC);
RIDGE_IS(Result::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
RIDGE_IS(Result::kTensorMemoryLeak, CUDA_ERROR_TENSOR_MEMORY_LEAK);
RIDGE_IS(Result::kSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY);
RIDGE_IS(Result::kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
RIDGE_IS(Result::kCompatNotSupported, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
RIDGE_IS(Result::kMpsClientTerminated, CUDA_ERROR_MPS_CLIENT_TERMINATED);
RIDGE_IS(Result::kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
RIDGE_IS(Result::kCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
RIDGE_IS(Result::kExternalDevice, CUDA_ERROR_EXTERNAL_DEVICE);

RIDGE_IS(DeviceAttribute::kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
RIDGE_IS(DeviceAttribute::kL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
RIDGE_IS(DeviceAttribute::kCopyEngines, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
RIDGE_IS(DeviceAttribute::kMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
RIDGE_IS(DeviceAttribute::kMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
RIDGE_IS(DeviceAttribute::kSharedPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
RIDGE_IS(DeviceAttribute::kSharedPerMultiprocessor,
         CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
RIDGE_IS(DeviceAttribute::kSharedReserved, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);

RIDGE_IS(FunctionAttribute::kMostThreads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
RIDGE_IS(FunctionAttribute::kStaticSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
RIDGE_IS(FunctionAttribute::kLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
RIDGE_IS(FunctionAttribute::kRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS);
RIDGE_IS(FunctionAttribute::kDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);

RIDGE_IS(JitOption::kErrorLog, CU_JIT_ERROR_LOG_BUFFER);
RIDGE_IS(JitOption::kErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
RIDGE_IS(CaptureMode::kThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
RIDGE_IS(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
RIDGE_IS(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
RIDGE_IS(kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);

TEST(CudaHeader, AgreesWithOurs) { EXPECT_GE(CUDA_VERSION, 13000); }

}  // namespace
}  // namespace ridge::cuda
#else
TEST(CudaHeader, AgreesWithOurs) { GTEST_SKIP() << "no cuda.h here: ./dev peers brings one"; }
#endif
