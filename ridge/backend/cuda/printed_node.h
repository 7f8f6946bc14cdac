// Nodes by the kernels that are printed for them: compiled, loaded, launched.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ridge/backend/cuda/fault_table.h"
#include "ridge/backend/cuda/module.h"
#include "ridge/backend/cuda/node_kernel.h"
#include "ridge/backend/cuda/nvrtc.h"
#include "ridge/backend/cuda/print_kernel.h"

namespace ridge::cuda {

/// Printed kernels on the device, once each however many nodes have them. A module lives as long as
/// somebody holds what load() gave.
class KernelLibrary {
 public:
  struct Loaded {
    Module module;
    std::vector<Kernel> kernels;  ///< One a launch.
  };

  /// Cubins are kept in `folder`; an empty path keeps none.
  KernelLibrary(DeviceRef device,
                std::shared_ptr<const Nvrtc> compiler,
                std::filesystem::path folder);

  /// UserError when NVRTC or the driver refuses it.
  std::shared_ptr<const Loaded> load(const PrintedKernel& printed);

 private:
  DeviceRef device_;
  std::string architecture_;  ///< "sm_90".
  CubinCache cubins_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const Loaded>> loaded_;  ///< By the kernel's name.
};

/// Why the device cannot run the kernel; empty: it can.
std::string launch_refusal(const PrintedKernel& printed, const DeviceFacts& facts);

/// The node by `printed`. Library and table must outlive it.
std::unique_ptr<NodeKernel> make_printed_node(const Node& node,
                                              std::shared_ptr<const PrintedKernel> printed,
                                              KernelLibrary& library,
                                              FaultTable& faults);

}  // namespace ridge::cuda
