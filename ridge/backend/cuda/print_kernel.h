// Kernel IR printed as CUDA C++ for NVRTC: fused nodes, and single nodes that are a fused body of
// one op.
//
// Bits: all that is printed gives the bits of the CPU executors (semantic class 0): every op is one
// correctly rounded operation or a sequence of them that both share, nothing is contracted, and
// reductions keep the tree of the Kernel IR (pieces of 2048, 64 lanes, chunks of 64 rows). A norm
// given as one node is the exception: its plain form is printed, which differs from the CPU's
// kernel for it in the order of additions (class 1).
//
// What has no such form is refused with a reason: functions of f64, reductions of axes in the
// middle, sums over rows that no block's shared memory holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge::cuda {

/// A pointer that a launch is given.
struct KernelOperand {
  enum Kind : uint8_t {
    kInput,      ///< Of the node, by index.
    kOutput,     ///< Of the node, by index.
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
  size_t shared_bytes = 0;  ///< Dynamic; above 48 KiB the driver has to be asked for it.
  std::vector<KernelOperand> operands;
};

struct PrintedKernel {
  /// The ops that it computes and a hash of the source: "loop_mul_add_gelu_0123456789abcdef".
  std::string name;
  std::string source;
  std::vector<KernelLaunch> launches;  ///< One after the other.
  size_t workspace_bytes = 0;
  /// Where the kernel checks indices: what they are out of range of, for the error of a fault.
  int64_t index_limit = 0;
  /// False where the bits are not those of the CPU executors.
  bool same_bits = true;
};

struct Printing {
  std::optional<PrintedKernel> kernel;
  std::string refusal;  ///< Why there is none; the end of a sentence about the node.
};

/// The kernel of a fused node, or of one op. The sites of the nodes are no part of it: layers of a
/// model share their kernels.
Printing print_kernel(const Node& node);

/// The files that printed sources include, by the names that they include them by.
const std::vector<std::pair<std::string_view, std::string_view>>& device_headers();

}  // namespace ridge::cuda
