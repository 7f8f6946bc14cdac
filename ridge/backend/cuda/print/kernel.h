// The kernels that Ridge writes itself, printed as CUDA C++ for NVRTC: fused nodes, elementwise
// ops, and families of ops that have a file each.
//
// Bits: where nothing else is said, a kernel gives the bits of the CPU backend (semantic class 0):
// it does the same correctly rounded operations in the same order, and nothing is contracted. Sums
// keep the CPU's tree (pieces of 2048, 64 lanes, chunks of 64 rows) and rows that are added by
// index their order. What differs is functions of f64, which are CUDA's own, and the logarithm of
// log-softmax and cross-entropy.
//
// What has no kernel is refused with a reason: ops that libraries or their plain form serve, as
// convolutions, batch norms, pooling and attention, and fused sums over rows that no block's shared
// memory holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/backend/cuda/print/device_limits.h"
#include "ridge/graph/graph.h"

namespace ridge::cuda {

/// A pointer that a launch is given.
struct KernelOperand {
  enum Kind : uint8_t {
    kInput,      ///< An input of the node, by index.
    kOutput,     ///< An output of the node, by index.
    kWorkspace,  ///< At that many bytes.
    kFault,      ///< A Fault of device/kernel.h: 16 bytes, zero before the first launch.
  };
  Kind kind = kInput;
  size_t at = 0;
};

/// One launch. Every kernel strides over its work by the size of its grid: any other number of
/// blocks gives the same bits.
struct KernelLaunch {
  std::string entry;  ///< Name of the function in the source.
  uint32_t blocks = 1, threads = 1;
  size_t shared_bytes = 0;         ///< Dynamic.
  size_t static_shared_bytes = 0;  ///< Declared beside it, where there is dynamic memory.
  std::vector<KernelOperand> operands;
  size_t listed = 0;  ///< So many of the last operands are one parameter, an array of them.
};

struct PrintedKernel {
  /// The ops that it computes and a hash of the source: "loop_mul_add_gelu_0123456789abcdef".
  std::string name;
  std::string source;
  std::vector<KernelLaunch> launches;  ///< One after the other.
  size_t workspace_bytes = 0;
  /// The bound of the indices of a kernel that checks them, which the error of a fault names; 0:
  /// the kernel checks none.
  int64_t index_limit = 0;
  /// False where the bits are not those of the CPU executors.
  bool same_bits = true;
};

struct Printing {
  std::optional<PrintedKernel> kernel;
  std::string refusal;  ///< Why there is none; the end of a sentence about the node.
};

/// The kernel of the node, cut for a device of these limits, of which the bits do not depend. The
/// sites of the nodes are no part of it: layers of a model share their kernels.
Printing print_kernel(const Node& node, const DeviceLimits& limits);

/// The same for tensor cores: attention and its gradient, where the operands have 16 bits. The
/// results differ from those of print_kernel() in the last bits, and are the same in each run.
Printing print_mma_kernel(const Node& node, const DeviceLimits& limits);

/// The same by the device's own exp and the like (device/approx.h) instead of the CPU's: of loops
/// in which an element has one. Sums of long rows, and of exponentials, take another order too.
/// Other bits than those of print_kernel(), and the same ones in each run.
Printing print_approx_kernel(const Node& node, const DeviceLimits& limits);

/// The files that printed sources include, by the names that they include them by.
const std::vector<std::pair<std::string_view, std::string_view>>& device_headers();

}  // namespace ridge::cuda
