// The binary interface of NVIDIA's driver, written down from its published reference, as much of it
// as is called: no header of NVIDIA is needed, and no driver to build.
#pragma once

namespace ridge::cuda {

/// An address in the memory of a device.
using DevicePointer = unsigned long long;

// Handles are opaque; each kind has a type of its own, so that none passes for another.
using ContextHandle = struct OpaqueContext*;
using StreamHandle = struct OpaqueStream*;
using EventHandle = struct OpaqueEvent*;
using ModuleHandle = struct OpaqueModule*;
using FunctionHandle = struct OpaqueFunction*;
using GraphHandle = struct OpaqueGraph*;
using GraphNodeHandle = struct OpaqueGraphNode*;
using GraphExecHandle = struct OpaqueGraphExec*;

struct DeviceUuid {
  unsigned char bytes[16];
};

/// The status that a call returns. Only those are named that Ridge tells apart; others keep their
/// number.
enum class Result : int {
  kSuccess = 0,
  kOutOfMemory = 2,
  kStubLibrary = 34,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kNvlinkUncorrectable = 220,
  kUnsupportedPtxVersion = 222,
  kContained = 226,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kTensorMemoryLeak = 721,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kCompatNotSupported = 804,
  kMpsClientTerminated = 810,
  kCaptureUnsupported = 900,
  kCaptureUnjoined = 904,
  kExternalDevice = 911,
  kUnknown = 999,
};

/// Arguments of cuDeviceGetAttribute.
enum class DeviceAttribute : int {
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kCopyEngines = 40,
  kMajor = 75,
  kMinor = 76,
  kSharedPerMultiprocessor = 81,
  kSharedPerBlock = 97,   ///< For kernels that ask for it.
  kSharedReserved = 111,  ///< Bytes that the driver takes in each block.
};

/// Arguments of cuFuncGetAttribute and cuFuncSetAttribute.
enum class FunctionAttribute : int {
  kMostThreads = 0,
  kStaticSharedBytes = 1,
  kLocalBytes = 3,
  kRegisters = 4,
  kDynamicSharedBytes = 8,
};

/// Options of cuModuleLoadDataEx: the buffer for the log of its compiler, and the buffer's bytes.
enum class JitOption : int { kErrorLog = 5, kErrorLogBytes = 6 };

enum class CaptureMode : int { kThreadLocal = 1 };

// Flags of streams, events and page-locked memory.
inline constexpr unsigned kStreamNonBlocking = 1;  // takes no turns with the default stream
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostAllocPortable = 1;  // page-locked for all contexts

}  // namespace ridge::cuda
