#include "ridge/backend/cuda/printed_node.h"

#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/fused.h"

namespace ridge::cuda {
namespace {

constexpr size_t kMostOperands = 512;  // fill the parameters of a launch, 8 bytes each

class PrintedNode final : public NodeKernel {
 public:
  PrintedNode(std::shared_ptr<const PrintedKernel> printed,
              KernelLibrary& library,
              std::unique_ptr<const FaultTable::Record> record)
      : printed_(std::move(printed)),
        library_(library),
        kernel_(library.add(printed_)),
        record_(std::move(record)) {}

  size_t workspace_bytes() const override { return printed_->workspace_bytes; }

  void prepare() const override {
    if (loaded_ == nullptr) loaded_ = &library_.load(*kernel_);
  }

  void launch(ridge::Stream& engine_stream, const KernelArgs& args) const override {
    Stream& stream = cuda_stream(engine_stream);
    prepare();
    if (record_ != nullptr) record_->launch_on(stream);
    std::array<DevicePointer, kMostOperands> addresses{};
    std::array<void*, kMostOperands> parameters{};
    for (size_t i = 0; i < printed_->launches.size(); ++i) {
      const KernelLaunch& each = printed_->launches[i];
      for (size_t k = 0; k < each.operands.size(); ++k) {
        addresses[k] = address(each.operands[k], args);
        parameters[k] = &addresses[k];
      }
      // The parameter of those that are listed is where they begin.
      const size_t count = each.operands.size() - each.listed + (each.listed > 0 ? 1 : 0);
      cuda::launch(stream,
                   loaded_->kernels[i],
                   {.grid_x = each.blocks,
                    .block_x = each.threads,
                    .shared_bytes = static_cast<unsigned>(each.shared_bytes)},
                   std::span(parameters).first(count));
    }
  }

 private:
  DevicePointer address(const KernelOperand& operand, const KernelArgs& args) const {
    switch (operand.kind) {
      case KernelOperand::kInput:
        return device_pointer(args.inputs[operand.at]);
      case KernelOperand::kOutput:
        return device_pointer(args.outputs[operand.at]);
      case KernelOperand::kWorkspace:
        return device_pointer(args.workspace) + operand.at;
      case KernelOperand::kFault:
        break;
    }
    return record_->address();
  }

  std::shared_ptr<const PrintedKernel> printed_;
  KernelLibrary& library_;
  std::shared_ptr<KernelLibrary::Shared> kernel_;
  std::unique_ptr<const FaultTable::Record> record_;       // null where it checks no index
  mutable const KernelLibrary::Loaded* loaded_ = nullptr;  ///< Null until prepare().
};

bool checks_indices(const PrintedKernel& printed) {
  for (const KernelLaunch& launch : printed.launches)
    for (const KernelOperand& operand : launch.operands)
      if (operand.kind == KernelOperand::kFault) return true;
  return false;
}

}  // namespace

KernelLibrary::KernelLibrary(DeviceRef device,
                             std::shared_ptr<const Nvrtc> compiler,
                             std::filesystem::path folder)
    : device_(std::move(device)),
      architecture_(
          compiler->target_for(device_->facts().limits.major, device_->facts().limits.minor)),
      cubins_(std::move(compiler), std::move(folder)) {}

std::shared_ptr<KernelLibrary::Shared> KernelLibrary::add(
    std::shared_ptr<const PrintedKernel> printed) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<Shared>& known = kernels_[printed->name];
  std::shared_ptr<Shared> kernel = known.lock();
  if (kernel != nullptr) return kernel;
  kernel = std::make_shared<Shared>();
  kernel->printed_ = std::move(printed);
  known = kernel;
  return kernel;
}

const KernelLibrary::Loaded& KernelLibrary::load(Shared& kernel) {
  const std::lock_guard lock(mutex_);
  if (kernel.loaded_) return *kernel.loaded_;
  if (!kernel.is_compiled_) compile_all();
  // Each error is thrown by the call that asks for its kernel: which error is reported does not
  // depend on the threads.
  if (kernel.error_ != nullptr) std::rethrow_exception(kernel.error_);
  return kernel.loaded_.emplace(make(kernel));
}

void KernelLibrary::compile_all() {
  std::vector<std::shared_ptr<Shared>> waiting;
  std::erase_if(kernels_, [&](const auto& each) {
    std::shared_ptr<Shared> kernel = each.second.lock();
    if (kernel == nullptr) return true;
    if (!kernel->is_compiled_) waiting.push_back(std::move(kernel));
    return false;
  });
  parallel_for(std::ssize(waiting), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Shared& kernel = *waiting[static_cast<size_t>(i)];
      try {
        kernel.cubin_ =
            cubins_.compile(kernel.printed_->source, kernel.printed_->name, architecture_);
      } catch (...) {
        kernel.error_ = std::current_exception();
      }
    }
  });
  for (const auto& kernel : waiting) kernel->is_compiled_ = true;
}

KernelLibrary::Loaded KernelLibrary::make(Shared& kernel) const {
  device_->ensure_current();
  const PrintedKernel& printed = *kernel.printed_;
  Loaded made{.module = Module(device_, kernel.cubin_, printed.name), .kernels = {}};
  for (const KernelLaunch& launch : printed.launches) {
    made.kernels.push_back(
        made.module.kernel(launch.entry, static_cast<unsigned>(launch.shared_bytes)));
    const Kernel& each = made.kernels.back();
    check_internal(std::cmp_less_equal(launch.threads, each.most_threads),
                   "kernel '{}' is launched with {} threads, and takes {}",
                   each.name,
                   launch.threads,
                   each.most_threads);
  }
  kernel.cubin_ = {};
  return made;
}

std::string launch_refusal(const PrintedKernel& printed, const DeviceLimits& limits) {
  for (const KernelLaunch& launch : printed.launches) {
    const size_t bytes = launch.shared_bytes + launch.static_shared_bytes;
    if (std::cmp_greater(bytes, limits.shared_per_block))
      return fmt::format("takes {} bytes of shared memory a block, and the device has {}",
                         bytes,
                         limits.shared_per_block);
    if (launch.operands.size() > kMostOperands)
      return fmt::format("takes {} operands", launch.operands.size());
  }
  return {};
}

std::unique_ptr<NodeKernel> make_printed_node(const Node& node,
                                              std::shared_ptr<const PrintedKernel> printed,
                                              KernelLibrary& library,
                                              FaultTable& faults) {
  std::unique_ptr<const FaultTable::Record> record;
  if (checks_indices(*printed))
    // In a fused body, a pick is what checks indices.
    record = faults.make_record({.op = node.is<Fused>() ? "pick" : std::string(node.op->name()),
                                 .site = node.site.name,
                                 .limit = printed->index_limit});
  return std::make_unique<PrintedNode>(std::move(printed), library, std::move(record));
}

}  // namespace ridge::cuda
