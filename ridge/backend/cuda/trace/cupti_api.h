// The binary interface of CUPTI's activities, written down from its published reference, as much of
// it as is used: no header of NVIDIA is needed.
//
// Records grow at their end from version to version. What is written down here is the part that all
// versions since CUDA 12.0 share, so a record is read as one of these whatever its real size is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ridge::cuda {

/// The status that a call returns. Only those are named that Ridge tells apart; others keep their
/// number.
enum class CuptiResult : int {
  kSuccess = 0,
  kMaxLimitReached = 12,  ///< No more records in the buffer.
  kNotInitialized = 15,
  kInvalidKind = 21,
  kInsufficientPrivileges = 35,
  kMultipleSubscribers = 39,
};

enum class ActivityKind : uint32_t {
  kInvalid = 0,
  kCopy = 1,
  kSet = 2,
  kKernel = 3,
  kDriverCall = 4,
  kRuntimeCall = 5,
  kConcurrentKernel = 10,  ///< Records are as kKernel's; kernels still run side by side.
  kOverhead = 17,
  kEvent = 36,
  kSynchronization = 38,
  kExternalCorrelation = 39,
};

/// Domains of cuptiGetCallbackName.
enum class CallDomain : uint32_t { kDriver = 1, kRuntime = 2 };

enum class ThreadIdType : uint32_t { kSystem = 1 };
enum class ActivityAttribute : uint32_t { kZeroedBuffers = 5 };
enum class ExternalKind : uint32_t { kCustom0 = 3 };
inline constexpr uint32_t kFlushForced = 1;
/// The id that stands for "there is none".
inline constexpr uint32_t kNoActivityId = 0xffffffff;

/// 0: not known.
enum class CopyKind : uint8_t {
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 8,
  kHostToHost = 9,
  kPeerToPeer = 10,
};
enum class ActivityMemory : uint8_t {
  kPageable = 1,
  kPinned = 2,
  kDevice = 3,
  kArray = 4,
  kManaged = 5,
  kDeviceStatic = 6,
  kManagedStatic = 7,
};
enum class SynchronizationKind : uint32_t {
  kEvent = 1,
  kStreamWaitsEvent = 2,
  kStream = 3,
  kContext = 4,
};
enum class OverheadKind : uint32_t {
  kCompiler = 1,
  kBufferFlush = 1U << 16,
  kInstrumentation = 2U << 16,
  kResource = 3U << 16,
  kModuleLoading = 4U << 16,
  kFunctionLoading = 5U << 16,
  kCommandBufferFull = 6U << 16,
  kBufferRequest = 7U << 16,
  kManagedMemory = 8U << 16,
};
enum class ActivityObject : uint32_t { kProcess = 1, kThread = 2 };

// Times are nanoseconds of the clock that was registered; 0: not known.

struct KernelActivity {
  ActivityKind kind;
  uint8_t cache_config, shared_config;
  uint16_t registers;
  uint32_t partitioned_cache_requested, partitioned_cache_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared_bytes, dynamic_shared_bytes;
  uint32_t local_bytes_per_thread, local_bytes_before_12;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
  void* reserved;
  uint64_t queued, submitted;
  uint8_t launch_type, carveout_requested, carveout_percent, padding;
  uint32_t shared_executed;
  uint64_t graph_node;  ///< 0: no graph launched it.
  uint32_t shared_limit;
  uint32_t graph;
};

struct CopyActivity {
  ActivityKind kind;
  CopyKind copy;
  ActivityMemory from, to;
  uint8_t flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
  uint32_t runtime_correlation, padding;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph;
};

struct SetActivity {
  ActivityKind kind;
  uint32_t value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
  uint16_t flags, memory;
  uint32_t padding;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph;
};

struct CallActivity {
  ActivityKind kind;
  uint32_t call;  ///< Its number in the domain of the kind.
  uint64_t start, end;
  uint32_t process, thread, correlation, result;
};

struct OverheadActivity {
  ActivityKind kind;
  OverheadKind overhead;
  ActivityObject object;
  uint32_t object_ids[3];  ///< Process and thread of a thread object.
  uint64_t start, end;
};

struct SynchronizationActivity {
  ActivityKind kind;
  SynchronizationKind synchronization;
  uint64_t start, end;
  uint32_t correlation, context, stream, event;
};

/// An event was recorded on a stream.
struct EventActivity {
  ActivityKind kind;
  uint32_t correlation, context, stream, event;
};

struct ExternalCorrelationActivity {
  ActivityKind kind;
  ExternalKind external;
  uint64_t id;
  uint32_t correlation;
};

using SubscriberHandle = struct OpaqueSubscriber*;
using BufferRequested = void(uint8_t** buffer, size_t* bytes, size_t* most_records);
using BufferCompleted =
    void(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t valid_bytes);
using CuptiClock = uint64_t();
using CuptiCallback = void(void* user, uint32_t domain, uint32_t call, const void* data);

// The functions that Ridge calls, by CUPTI's names without `cupti`.
struct CuptiFunctions {
  using GetVersion = CuptiResult(uint32_t*);
  using GetResultString = CuptiResult(CuptiResult, const char**);
  using GetCallbackName = CuptiResult(CallDomain, uint32_t, const char**);
  using Subscribe = CuptiResult(SubscriberHandle*, CuptiCallback*, void*);
  using Unsubscribe = CuptiResult(SubscriberHandle);
  using SetThreadIdType = CuptiResult(ThreadIdType);
  using ActivityRegisterTimestampCallback = CuptiResult(CuptiClock*);
  using ActivityRegisterCallbacks = CuptiResult(BufferRequested*, BufferCompleted*);
  using ActivitySetAttribute = CuptiResult(ActivityAttribute, size_t*, void*);
  using ActivityEnable = CuptiResult(ActivityKind);
  using ActivityDisable = CuptiResult(ActivityKind);
  using ActivityFlushAll = CuptiResult(uint32_t);
  using ActivityGetNextRecord = CuptiResult(uint8_t*, size_t, uint8_t**);
  using ActivityGetNumDroppedRecords = CuptiResult(void*, uint32_t, size_t*);
  using ActivityPushExternalCorrelationId = CuptiResult(ExternalKind, uint64_t);
  using ActivityPopExternalCorrelationId = CuptiResult(ExternalKind, uint64_t*);

  GetVersion* get_version;
  GetResultString* get_result_string;
  GetCallbackName* get_callback_name;
  Subscribe* subscribe;
  Unsubscribe* unsubscribe;
  SetThreadIdType* set_thread_id_type;
  ActivityRegisterTimestampCallback* register_clock;
  ActivityRegisterCallbacks* register_callbacks;
  ActivitySetAttribute* set_attribute;
  ActivityEnable* enable;
  ActivityDisable* disable;
  ActivityFlushAll* flush_all;
  ActivityGetNextRecord* get_next_record;
  ActivityGetNumDroppedRecords* get_dropped;
  ActivityPushExternalCorrelationId* push_external;
  ActivityPopExternalCorrelationId* pop_external;
};

}  // namespace ridge::cuda
