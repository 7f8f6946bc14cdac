#include "tests/backend/cuda_kernels/printed_on_host.h"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>

#include "tests/backend/cuda/simulation/compile.h"

namespace ridge::test {

PrintedOnHost::~PrintedOnHost() {
  if (library_ != nullptr) dlclose(library_);
}

void PrintedOnHost::add(const cuda::PrintedKernel& kernel) {
  if (std::ranges::find(names_, kernel.name) != names_.end()) return;
  names_.push_back(kernel.name);
  sources_.push_back(kernel.source);
}

void PrintedOnHost::build() {
  std::map<std::string, std::string> headers;
  for (const auto& [name, text] : cuda::device_headers()) headers.emplace(name, text);
  // Kernels use the runtime of AddressSanitizer where this process has it, linked or preloaded.
  const bool is_sanitized = dlsym(RTLD_DEFAULT, "__asan_init") != nullptr;
  const auto path = compile_simulated(sources_, headers, is_sanitized);
  library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw std::runtime_error(dlerror());
  const auto* kernel = static_cast<const SimulatedKernel*>(dlsym(library_, kSimulatedKernels));
  for (; kernel->name != nullptr; ++kernel) kernels_[kernel->name] = kernel;
}

HostFault PrintedOnHost::run(const cuda::PrintedKernel& kernel,
                             const std::vector<const void*>& inputs,
                             const std::vector<void*>& outputs,
                             bool one_block) const {
  HostFault fault;
  // Memory that no launch has written must not look like a result.
  std::vector<std::byte> memory(kernel.workspace_bytes + 64, std::byte{0x5a});
  auto* workspace = memory.data();
  while (reinterpret_cast<uintptr_t>(workspace) % 64 != 0) ++workspace;
  for (const cuda::KernelLaunch& launch : kernel.launches) {
    std::vector<void*> operands;
    for (const auto& [kind, at] : launch.operands)
      operands.push_back(kind == cuda::KernelOperand::kInput    ? const_cast<void*>(inputs.at(at))
                         : kind == cuda::KernelOperand::kOutput ? outputs.at(at)
                         : kind == cuda::KernelOperand::kFault  ? static_cast<void*>(&fault)
                                                                : workspace + at);
    // The last ones may be one parameter, which is handed over by its address.
    const std::vector<void*> list(operands.end() - static_cast<ptrdiff_t>(launch.listed),
                                  operands.end());
    operands.resize(operands.size() - launch.listed);
    if (!list.empty()) operands.push_back(const_cast<void**>(list.data()));
    kernels_.at(launch.entry)
        ->run(operands.data(), one_block ? 1 : launch.blocks, launch.threads, launch.shared_bytes);
  }
  return fault;
}

}  // namespace ridge::test
