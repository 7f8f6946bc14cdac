// Nodes by the kernels that are printed for them: compiled, loaded, launched.
#pragma once

#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ridge/backend/cuda/driver/module.h"
#include "ridge/backend/cuda/driver/node_kernel.h"
#include "ridge/backend/cuda/driver/nvrtc.h"
#include "ridge/backend/cuda/fault_table.h"
#include "ridge/backend/cuda/print/kernel.h"

namespace ridge::cuda {

/// Printed kernels on the device, once each however many nodes have them.
class KernelLibrary {
 public:
  struct Loaded {
    Module module;
    std::vector<Kernel> kernels;  ///< One a launch.
  };
  /// A kernel as its nodes share it: its module lives as long as one of them holds it.
  class Shared {
    friend class KernelLibrary;
    std::shared_ptr<const PrintedKernel> printed_;
    bool is_compiled_ = false;
    std::string cubin_;         // from compiled to loaded
    std::exception_ptr error_;  // why there is none
    std::optional<Loaded> loaded_;
  };

  /// Cubins are kept in `folder`; an empty path keeps none.
  KernelLibrary(DeviceRef device,
                std::shared_ptr<const Nvrtc> compiler,
                std::filesystem::path folder);

  /// Nothing is compiled yet.
  std::shared_ptr<Shared> add(std::shared_ptr<const PrintedKernel> printed);
  /// Loads it; first compiles, over all threads, whatever was added and still is held: NVRTC takes
  /// a second for a kernel, and who needs one mostly needs the others next. UserError when NVRTC or
  /// the driver refuses this one.
  const Loaded& load(Shared& kernel);

 private:
  void compile_all();
  Loaded make(Shared& kernel) const;

  DeviceRef device_;
  std::string architecture_;  ///< "sm_90"; see Nvrtc::target_for.
  CubinCache cubins_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Shared>> kernels_;  ///< By name.
};

/// Why the device cannot run the kernel; empty: it can.
std::string launch_refusal(const PrintedKernel& printed, const DeviceLimits& limits);

/// The node by `printed`. Library and table must outlive it.
std::unique_ptr<NodeKernel> make_printed_node(const Node& node,
                                              std::shared_ptr<const PrintedKernel> printed,
                                              KernelLibrary& library,
                                              FaultTable& faults);

}  // namespace ridge::cuda
