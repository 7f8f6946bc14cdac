// Compares cupti_api.h with NVIDIA's own header, where one is installed, while this file is
// compiled.
#include <gtest/gtest.h>

#ifdef RIDGE_TEST_CUDA_HEADER
#include <cupti.h>

#include <cstddef>
#include <type_traits>

#include "ridge/backend/cuda/trace/cupti_api.h"
#include "tests/backend/cuda/vendor_header.h"

namespace ridge::cuda {
namespace {

// A field of ours lies where theirs does, and is as large.
#define SAME(OURS, our_field, THEIRS, their_field)                           \
  static_assert(offsetof(OURS, our_field) == offsetof(THEIRS, their_field)); \
  static_assert(sizeof(OURS::our_field) == sizeof(THEIRS::their_field))
// The fields that records of several kinds share.
#define SAME_TIMES(OURS, THEIRS)    \
  SAME(OURS, start, THEIRS, start); \
  SAME(OURS, end, THEIRS, end)
#define SAME_STREAM(OURS, THEIRS)         \
  SAME(OURS, context, THEIRS, contextId); \
  SAME(OURS, stream, THEIRS, streamId);   \
  SAME(OURS, correlation, THEIRS, correlationId)
#define SAME_WORK(OURS, THEIRS)                \
  SAME_TIMES(OURS, THEIRS);                    \
  SAME_STREAM(OURS, THEIRS);                   \
  SAME(OURS, device, THEIRS, deviceId);        \
  SAME(OURS, graph_node, THEIRS, graphNodeId); \
  SAME(OURS, graph, THEIRS, graphId);          \
  static_assert(sizeof(OURS) <= sizeof(THEIRS))

SAME(KernelActivity, kind, CUpti_ActivityKernel11, kind);
SAME(KernelActivity, registers, CUpti_ActivityKernel11, registersPerThread);
SAME(KernelActivity, grid[0], CUpti_ActivityKernel11, gridX);
SAME(KernelActivity, grid[1], CUpti_ActivityKernel11, gridY);
SAME(KernelActivity, grid[2], CUpti_ActivityKernel11, gridZ);
SAME(KernelActivity, block[0], CUpti_ActivityKernel11, blockX);
SAME(KernelActivity, block[2], CUpti_ActivityKernel11, blockZ);
SAME(KernelActivity, static_shared_bytes, CUpti_ActivityKernel11, staticSharedMemory);
SAME(KernelActivity, dynamic_shared_bytes, CUpti_ActivityKernel11, dynamicSharedMemory);
SAME(KernelActivity, local_bytes_per_thread, CUpti_ActivityKernel11, localMemoryPerThread);
SAME(KernelActivity, name, CUpti_ActivityKernel11, name);
SAME_WORK(KernelActivity, CUpti_ActivityKernel11);

SAME(CopyActivity, copy, CUpti_ActivityMemcpy6, copyKind);
SAME(CopyActivity, from, CUpti_ActivityMemcpy6, srcKind);
SAME(CopyActivity, to, CUpti_ActivityMemcpy6, dstKind);
SAME(CopyActivity, bytes, CUpti_ActivityMemcpy6, bytes);
SAME_WORK(CopyActivity, CUpti_ActivityMemcpy6);

SAME(SetActivity, bytes, CUpti_ActivityMemset4, bytes);
SAME(SetActivity, memory, CUpti_ActivityMemset4, memoryKind);
SAME_WORK(SetActivity, CUpti_ActivityMemset4);

SAME(CallActivity, call, CUpti_ActivityAPI, cbid);
SAME_TIMES(CallActivity, CUpti_ActivityAPI);
SAME(CallActivity, process, CUpti_ActivityAPI, processId);
SAME(CallActivity, thread, CUpti_ActivityAPI, threadId);
SAME(CallActivity, correlation, CUpti_ActivityAPI, correlationId);
SAME(CallActivity, result, CUpti_ActivityAPI, returnValue);
static_assert(sizeof(CallActivity) == sizeof(CUpti_ActivityAPI));

SAME(OverheadActivity, overhead, CUpti_ActivityOverhead3, overheadKind);
SAME(OverheadActivity, object, CUpti_ActivityOverhead3, objectKind);
SAME(OverheadActivity, object_ids, CUpti_ActivityOverhead3, objectId);
SAME(OverheadActivity, object_ids[1], CUpti_ActivityOverhead3, objectId.pt.threadId);
SAME_TIMES(OverheadActivity, CUpti_ActivityOverhead3);
static_assert(sizeof(OverheadActivity) <= sizeof(CUpti_ActivityOverhead));

SAME(SynchronizationActivity, synchronization, CUpti_ActivitySynchronization2, type);
SAME_TIMES(SynchronizationActivity, CUpti_ActivitySynchronization2);
SAME_STREAM(SynchronizationActivity, CUpti_ActivitySynchronization2);
SAME(SynchronizationActivity, event, CUpti_ActivitySynchronization2, cudaEventId);
static_assert(sizeof(SynchronizationActivity) <= sizeof(CUpti_ActivitySynchronization));

SAME_STREAM(EventActivity, CUpti_ActivityCudaEvent2);
SAME(EventActivity, event, CUpti_ActivityCudaEvent2, eventId);
static_assert(sizeof(EventActivity) <= sizeof(CUpti_ActivityCudaEvent));

SAME(ExternalCorrelationActivity, external, CUpti_ActivityExternalCorrelation, externalKind);
SAME(ExternalCorrelationActivity, id, CUpti_ActivityExternalCorrelation, externalId);
SAME(ExternalCorrelationActivity, correlation, CUpti_ActivityExternalCorrelation, correlationId);
static_assert(sizeof(ExternalCorrelationActivity) <= sizeof(CUpti_ActivityExternalCorrelation));

// Older records have what is written down, too: those of CUDA 12.0 and what followed.
SAME(KernelActivity, correlation, CUpti_ActivityKernel8, correlationId);
SAME(KernelActivity, name, CUpti_ActivityKernel8, name);
SAME(KernelActivity, graph, CUpti_ActivityKernel8, graphId);
SAME(KernelActivity, graph, CUpti_ActivityKernel9, graphId);
SAME(CopyActivity, graph, CUpti_ActivityMemcpy5, graphId);
SAME(SynchronizationActivity, event, CUpti_ActivitySynchronization, cudaEventId);
SAME(EventActivity, event, CUpti_ActivityCudaEvent, eventId);
SAME(OverheadActivity, start, CUpti_ActivityOverhead, start);

#undef SAME_WORK
#undef SAME_STREAM
#undef SAME_TIMES
#undef SAME

RIDGE_IS(CuptiResult::kSuccess, CUPTI_SUCCESS);
RIDGE_IS(CuptiResult::kMaxLimitReached, CUPTI_ERROR_MAX_LIMIT_REACHED);
RIDGE_IS(CuptiResult::kNotInitialized, CUPTI_ERROR_NOT_INITIALIZED);
RIDGE_IS(CuptiResult::kInvalidKind, CUPTI_ERROR_INVALID_KIND);
RIDGE_IS(CuptiResult::kInsufficientPrivileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
RIDGE_IS(CuptiResult::kMultipleSubscribers, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);

RIDGE_IS(ActivityKind::kInvalid, CUPTI_ACTIVITY_KIND_INVALID);
RIDGE_IS(ActivityKind::kCopy, CUPTI_ACTIVITY_KIND_MEMCPY);
RIDGE_IS(ActivityKind::kSet, CUPTI_ACTIVITY_KIND_MEMSET);
RIDGE_IS(ActivityKind::kKernel, CUPTI_ACTIVITY_KIND_KERNEL);
RIDGE_IS(ActivityKind::kDriverCall, CUPTI_ACTIVITY_KIND_DRIVER);
RIDGE_IS(ActivityKind::kRuntimeCall, CUPTI_ACTIVITY_KIND_RUNTIME);
RIDGE_IS(ActivityKind::kConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
RIDGE_IS(ActivityKind::kOverhead, CUPTI_ACTIVITY_KIND_OVERHEAD);
RIDGE_IS(ActivityKind::kEvent, CUPTI_ACTIVITY_KIND_CUDA_EVENT);
RIDGE_IS(ActivityKind::kSynchronization, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
RIDGE_IS(ActivityKind::kExternalCorrelation, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);

RIDGE_IS(CallDomain::kDriver, CUPTI_CB_DOMAIN_DRIVER_API);
RIDGE_IS(CallDomain::kRuntime, CUPTI_CB_DOMAIN_RUNTIME_API);
RIDGE_IS(ThreadIdType::kSystem, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
RIDGE_IS(ActivityAttribute::kZeroedBuffers, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER);
RIDGE_IS(ExternalKind::kCustom0, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
RIDGE_IS(kFlushForced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
RIDGE_IS(kNoActivityId, CUPTI_SYNCHRONIZATION_INVALID_VALUE);

RIDGE_IS(CopyKind::kHostToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
RIDGE_IS(CopyKind::kDeviceToHost, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
RIDGE_IS(CopyKind::kDeviceToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
RIDGE_IS(CopyKind::kHostToHost, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
RIDGE_IS(CopyKind::kPeerToPeer, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
RIDGE_IS(ActivityMemory::kPageable, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
RIDGE_IS(ActivityMemory::kPinned, CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
RIDGE_IS(ActivityMemory::kDevice, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
RIDGE_IS(ActivityMemory::kArray, CUPTI_ACTIVITY_MEMORY_KIND_ARRAY);
RIDGE_IS(ActivityMemory::kManaged, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED);
RIDGE_IS(ActivityMemory::kDeviceStatic, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC);
RIDGE_IS(ActivityMemory::kManagedStatic, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC);

RIDGE_IS(SynchronizationKind::kEvent, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
RIDGE_IS(SynchronizationKind::kStreamWaitsEvent,
         CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
RIDGE_IS(SynchronizationKind::kStream, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
RIDGE_IS(SynchronizationKind::kContext, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);

RIDGE_IS(OverheadKind::kCompiler, CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER);
RIDGE_IS(OverheadKind::kBufferFlush, CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH);
RIDGE_IS(OverheadKind::kInstrumentation, CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION);
RIDGE_IS(OverheadKind::kResource, CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE);
RIDGE_IS(OverheadKind::kModuleLoading, CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING);
RIDGE_IS(OverheadKind::kFunctionLoading, CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING);
RIDGE_IS(OverheadKind::kCommandBufferFull, CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL);
RIDGE_IS(OverheadKind::kBufferRequest, CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST);
RIDGE_IS(OverheadKind::kManagedMemory, CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT);
RIDGE_IS(ActivityObject::kProcess, CUPTI_ACTIVITY_OBJECT_PROCESS);
RIDGE_IS(ActivityObject::kThread, CUPTI_ACTIVITY_OBJECT_THREAD);

#define CALL(name) static_assert(test::Alike<CuptiFunctions::name, decltype(cupti##name)>::value)
CALL(GetVersion);
CALL(GetResultString);
CALL(GetCallbackName);
CALL(Subscribe);
CALL(Unsubscribe);
CALL(SetThreadIdType);
CALL(ActivityRegisterTimestampCallback);
CALL(ActivityRegisterCallbacks);
CALL(ActivitySetAttribute);
CALL(ActivityEnable);
CALL(ActivityDisable);
CALL(ActivityFlushAll);
CALL(ActivityGetNextRecord);
CALL(ActivityGetNumDroppedRecords);
CALL(ActivityPushExternalCorrelationId);
CALL(ActivityPopExternalCorrelationId);
#undef CALL
static_assert(!test::Alike<CuptiFunctions::GetVersion, decltype(cuptiGetResultString)>::value);

TEST(CuptiHeader, AgreesWithOurs) { EXPECT_GE(CUPTI_API_VERSION, 130000); }

}  // namespace
}  // namespace ridge::cuda
#else
TEST(CuptiHeader, AgreesWithOurs) { GTEST_SKIP() << "no cupti.h here: ./dev peers brings one"; }
#endif
