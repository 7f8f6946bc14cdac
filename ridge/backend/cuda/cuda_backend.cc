#include "ridge/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>

#include "ridge/backend/cuda/blas/matmul.h"
#include "ridge/backend/cuda/blas/matmul_i8.h"
#include "ridge/backend/cuda/dnn/planner.h"
#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/captured_work.h"
#include "ridge/backend/cuda/engine_stream.h"
#include "ridge/backend/cuda/plain_nodes.h"
#include "ridge/backend/cuda/printed_node.h"
#include "ridge/backend/cuda/trace/device_trace.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/signature.h"

namespace ridge::cuda {
namespace {

// One way to compute a node, in the order of candidates().
struct Way {
  enum Kind : uint8_t {
    kCopy,      // the driver's copy
    kFill,      // the driver's fill
    kBlas,      // an algorithm of cuBLASLt
    kDnn,       // a plan of cuDNN
    kPrinted,   // a kernel of ours
    kStored,    // a copy of a constant that lies on the device
    kExpanded,  // op by op
  };
  Kind kind;
  Choice choice;
  size_t number = 0;  // algorithm of kBlas, plan of kDnn or kernel of kPrinted
  std::shared_ptr<bool> is_warm = std::make_shared<bool>(false);  // a library's kernel has run
};

// The candidates for all nodes of one signature.
struct Known {
  std::vector<Way> ways;
  std::vector<BlasChoice> algorithms;
  std::vector<DnnChoice> plans;
  std::vector<std::shared_ptr<const PrintedKernel>> printed;
  unsigned char byte = 0;  // value that kFill writes
};

// Bits of choices that are the CPU's, of printed ones that are not, of those of several, of printed
// ones for tensor cores, and of those by the device's approximations.
constexpr int kSameBits = 0, kPrintedBits = 1, kExpandedBits = 2, kMmaBits = 3, kApproxBits = 4;

class CudaBackend final : public Backend {
 public:
  CudaBackend(DeviceRef device,
              Libraries libraries,
              std::filesystem::path cubins,
              NoteListener note)
      : device_(std::move(device)),
        blas_(std::move(libraries.blas)),
        dnn_(std::move(libraries.dnn)),
        planner_(dnn_, std::move(note)),
        trace_(device_),
        library_(device_, std::move(libraries.compiler), std::move(cubins)),
        faults_(device_),
        copies_(device_) {}

  std::string_view name() const override { return "cuda"; }
  bool stores_16_bits() const override { return true; }
  // 128 bytes of 16 bits: what memory moves at once, and tensor cores read in packs of 16 bytes.
  int64_t column_multiple() const override { return 64; }
  std::string hardware() const override;
  int64_t memory_in_use() const override;
  int64_t cache_bytes() const override { return device_->facts().l2_bytes; }
  std::string gpu_uuid() const override { return device_->facts().uuid; }

  std::vector<Choice> candidates(const Node& node) const override {
    std::vector<Choice> choices;
    for (const Way& way : known(node).ways) {
      choices.push_back(way.choice);
      choices.back().other_bits = way.choice.bits != kSameBits;
    }
    return choices;
  }
  std::unique_ptr<NodeKernel> instantiate(const Node& node, size_t choice) const override {
    return make(node, choice, node.input_types(), false);
  }
  std::vector<PackedOperand> packed_operands(const Node& node, size_t choice) const override;
  std::unique_ptr<NodeKernel> instantiate_packed(const Node& node, size_t choice) const override;

  void* allocate(size_t bytes) override;
  void deallocate(void* memory) noexcept override;
  void* allocate_host(size_t bytes) override;
  void deallocate_host(void* memory) noexcept override;
  void copy_to_device(ridge::Stream& stream, void* to, const void* from, size_t bytes) override;
  void copy_to_host(ridge::Stream& stream, void* to, const void* from, size_t bytes) override;
  void copy_on_device(ridge::Stream& stream, void* to, const void* from, size_t bytes) override {
    cuda_stream(stream).copy(device_pointer(to), device_pointer(from), bytes);
  }
  void clear(ridge::Stream& stream, void* memory, size_t bytes) override {
    if (bytes > 0) cuda_stream(stream).fill(device_pointer(memory), 0, bytes);
  }
  std::unique_ptr<ridge::Stream> make_stream() override {
    device_->ensure_current();
    return std::make_unique<EngineStream>(device_, copies_, faults_);
  }
  bool can_record() const override { return true; }
  RecordingResult record(ridge::Stream& stream, FunctionRef<void()> queue) override;
  Calibration calibrate() override { return cuda::calibrate(*this, device_); }

 private:
  bool is_page_locked(const void* host) const;
  const Known& known(const Node& node) const;
  Known examine(const Node& node) const;
  void add_algorithms(const Node& node, Known& found) const;
  void add_plans(const Node& node, Known& found) const;
  void add_printed(const Node& node, Known& found) const;
  void add_expanded(const Node& node, Known& found) const;
  bool has_kernels(const Graph& form) const;
  const Way& way_of(const Node& node, size_t choice) const;
  // The kernel of a choice, for operands of these types.
  std::unique_ptr<NodeKernel> make(const Node& node,
                                   size_t choice,
                                   std::vector<TensorType> operands,
                                   bool is_packed) const;
  std::unique_ptr<NodeKernel> make_by_blas(const Node& node,
                                           const BlasChoice& choice,
                                           bool is_packed) const;

  DeviceRef device_;
  std::shared_ptr<const Blas> blas_;  // null: there is none
  std::shared_ptr<const Dnn> dnn_;    // likewise
  mutable DnnPlanner planner_;        // under known_mutex_
  DeviceTrace trace_;
  // Kernels that the graph is asked for change nothing that a caller could see.
  mutable KernelLibrary library_;
  mutable FaultTable faults_;
  mutable HostCopies copies_;
  mutable std::mutex memory_mutex_;
  std::unordered_map<void*, Arena> memory_;
  std::map<const void*, PinnedMemory> host_memory_;
  mutable std::recursive_mutex known_mutex_;  // a plain form asks for its ops
  mutable std::map<std::string, Known> known_;
};

std::string CudaBackend::hardware() const {
  const DeviceFacts& facts = device_->facts();
  std::string text = fmt::format("{}, sm_{}{}, driver for CUDA {}",
                                 facts.name,
                                 facts.limits.major,
                                 facts.limits.minor,
                                 device_->driver().version_text());
  // Its versions have other algorithms.
  text += blas_ == nullptr ? ", no cuBLASLt"
                           : fmt::format(", cuBLASLt {}", blas_->library()->version_text);
  if (dnn_ != nullptr) text += fmt::format(", cuDNN {}", dnn_->library()->version_text);
  return text;
}

int64_t CudaBackend::memory_in_use() const {
  device_->ensure_current();
  const DeviceMemoryUse use = device_->memory_use();
  return static_cast<int64_t>(use.total - use.free);
}

const Known& CudaBackend::known(const Node& node) const {
  const std::lock_guard lock(known_mutex_);
  std::string key = signature(node);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  Known made = examine(node);
  return known_.emplace(std::move(key), std::move(made)).first->second;
}

// Best guess first.
Known CudaBackend::examine(const Node& node) const {
  Known found;
  if (node.is<Input>()) return found;
  if (is_copy(node)) {
    found.ways.push_back({Way::kCopy, {"copy", kSameBits}});
    return found;
  }
  if (node.is<Constant>()) {
    if (const auto byte = byte_of_constant(node)) {
      found.byte = *byte;
      found.ways.push_back({Way::kFill, {"fill", kSameBits}});
      return found;
    }
  }
  add_algorithms(node, found);
  add_plans(node, found);
  add_printed(node, found);
  if (node.is<Constant>() && found.ways.empty())
    found.ways.push_back({Way::kStored, {"stored", kSameBits}});
  // Other ops with a plain form are lowered to it by a pass, which fuses what it can.
  if (node.is<Fused>() || node.is<FusedMatMul>()) add_expanded(node, found);
  return found;
}

void CudaBackend::add_algorithms(const Node& node, Known& found) const {
  if (blas_ == nullptr) return;
  device_->ensure_current();
  if (node.is<MatMulI8>()) {
    found.algorithms = blas_i8_choices(*blas_, node);
    std::erase_if(found.algorithms, [&](const BlasChoice& choice) {
      const std::vector<Graph> forms = blas_i8_forms(node, choice);
      return !std::ranges::all_of(forms, [&](const Graph& form) { return has_kernels(form); });
    });
  } else {
    found.algorithms = blas_choices(*blas_, node);
  }
  for (size_t i = 0; i < found.algorithms.size(); ++i)
    found.ways.push_back({Way::kBlas, found.algorithms[i].choice, i});
}

void CudaBackend::add_plans(const Node& node, Known& found) const {
  found.plans = planner_.choices(node);
  for (size_t i = 0; i < found.plans.size(); ++i)
    found.ways.push_back({Way::kDnn, found.plans[i].choice, i});
}

void CudaBackend::add_printed(const Node& node, Known& found) const {
  const DeviceLimits& limits = device_->facts().limits;
  const auto add = [&](Printing printing, std::string name, int other_bits) {
    if (!printing.kernel || !launch_refusal(*printing.kernel, limits).empty()) return;
    const int bits = printing.kernel->same_bits ? kSameBits : other_bits;
    found.ways.push_back({Way::kPrinted, {std::move(name), bits}, found.printed.size()});
    found.printed.push_back(std::make_shared<const PrintedKernel>(std::move(*printing.kernel)));
  };
  add(print_mma_kernel(node, limits), "printed_mma", kMmaBits);
  add(print_kernel(node, limits), "printed", kPrintedBits);
  add(print_approx_kernel(node, limits), "printed_approx", kApproxBits);
}

void CudaBackend::add_expanded(const Node& node, Known& found) const {
  const std::optional<Graph> form = plain_form(node);
  if (!form) return;
  int bits = kSameBits;
  for (const auto& plain : form->nodes()) {
    if (plain->is<Input>()) continue;
    const Known& part = known(*plain);
    if (part.ways.empty()) return;
    if (part.ways[0].choice.bits != kSameBits) bits = kExpandedBits;
  }
  found.ways.push_back({Way::kExpanded, {std::string(kExpandedChoice), bits}});
}

bool CudaBackend::has_kernels(const Graph& form) const {
  return std::ranges::all_of(form.nodes(), [&](const auto& node) {
    return node->template is<Input>() || !known(*node).ways.empty();
  });
}

const Way& CudaBackend::way_of(const Node& node, size_t choice) const {
  const Known& found = known(node);
  check_internal(choice < found.ways.size(),
                 "choice {} of {} for node '{}'",
                 choice,
                 found.ways.size(),
                 node.site.name);
  return found.ways[choice];
}

std::vector<PackedOperand> CudaBackend::packed_operands(const Node& node, size_t choice) const {
  if (!node.is<MatMulI8>() || way_of(node, choice).kind != Way::kBlas) return {};
  return blas_i8_packed(node);
}

std::unique_ptr<NodeKernel> CudaBackend::instantiate_packed(const Node& node, size_t choice) const {
  const std::vector<PackedOperand> packed = packed_operands(node, choice);
  check_internal(!packed.empty(), "choice {} packs nothing for node '{}'", choice, node.site.name);
  std::vector<TensorType> operands = node.input_types();
  for (const PackedOperand& each : packed) {
    Graph graph("packed");
    operands[each.input] = each.pack(input(graph, "operand", operands[each.input])).type();
  }
  return make(node, choice, std::move(operands), true);
}

std::unique_ptr<NodeKernel> CudaBackend::make_by_blas(const Node& node,
                                                      const BlasChoice& choice,
                                                      bool is_packed) const {
  const auto make_part = [this](const Node& part) { return instantiate(part, 0); };
  if (!node.is<MatMulI8>()) return make_blas_kernel(blas_, node, choice, make_part);
  const auto make_form = [&](const Graph& form) {
    return make_expanded_node(form, make_part, ResultsLie::kApart);
  };
  return make_blas_i8_kernel(blas_, node, choice, make_form, is_packed);
}

std::unique_ptr<NodeKernel> CudaBackend::make(const Node& node,
                                              size_t choice,
                                              std::vector<TensorType> operands,
                                              bool is_packed) const {
  const Way& way = way_of(node, choice);
  const Known& found = known(node);
  const auto make_part = [this](const Node& part) { return instantiate(part, 0); };
  const auto warmed = [&](std::unique_ptr<NodeKernel> kernel) {
    return make_warmed_node(
        std::move(kernel),
        std::move(operands),
        node.outputs,
        device_,
        [this] { return std::make_unique<EngineStream>(device_, copies_, faults_); },
        way.is_warm);
  };
  switch (way.kind) {
    case Way::kCopy:
      return make_copy_node(node);
    case Way::kFill:
      return make_fill_node(node, found.byte);
    case Way::kBlas:
      return warmed(make_by_blas(node, found.algorithms[way.number], is_packed));
    case Way::kDnn:
      return warmed(make_dnn_kernel(dnn_, node, found.plans[way.number], make_part));
    case Way::kPrinted:
      return make_printed_node(node, found.printed[way.number], library_, faults_);
    case Way::kStored:
      return make_stored_constant(node, device_);
    case Way::kExpanded:
      break;
  }
  return make_expanded_node(*plain_form(node), make_part);
}

void* CudaBackend::allocate(size_t bytes) try {
  device_->ensure_current();
  Arena arena(device_, std::max<size_t>(bytes, 1));
  void* const memory = reinterpret_cast<void*>(arena.at(0, 0));
  const std::lock_guard lock(memory_mutex_);
  memory_.emplace(memory, std::move(arena));
  return memory;
} catch (const CudaError& error) {
  if (error.trouble() != Trouble::kOutOfMemory) throw;
  throw OutOfMemory(error.message(), error.fix());
}

void CudaBackend::deallocate(void* memory) noexcept {
  if (memory == nullptr) return;
  const std::lock_guard lock(memory_mutex_);
  memory_.erase(memory);
}

void* CudaBackend::allocate_host(size_t bytes) {
  device_->ensure_current();
  PinnedMemory made(device_, std::max<size_t>(bytes, 1));
  void* const memory = made.bytes().data();
  const std::lock_guard lock(memory_mutex_);
  host_memory_.emplace(memory, std::move(made));
  return memory;
}

void CudaBackend::deallocate_host(void* memory) noexcept {
  if (memory == nullptr) return;
  const std::lock_guard lock(memory_mutex_);
  host_memory_.erase(memory);
}

bool CudaBackend::is_page_locked(const void* host) const {
  const std::lock_guard lock(memory_mutex_);
  auto after = host_memory_.upper_bound(host);
  if (after == host_memory_.begin()) return false;
  const std::span<std::byte> bytes = (--after)->second.bytes();
  return std::less<>()(host, static_cast<const void*>(bytes.data() + bytes.size()));
}

void CudaBackend::copy_to_device(ridge::Stream& stream, void* to, const void* from, size_t bytes) {
  if (is_page_locked(from))
    cuda_stream(stream).copy_to_device(device_pointer(to), from, bytes);
  else
    copies_.to_device(cuda_stream(stream), device_pointer(to), from, bytes);
}

void CudaBackend::copy_to_host(ridge::Stream& stream, void* to, const void* from, size_t bytes) {
  if (is_page_locked(to))
    cuda_stream(stream).copy_to_host(to, device_pointer(from), bytes);
  else
    copies_.to_host(cuda_stream(stream), to, device_pointer(from), bytes);
}

class CapturedLaunches final : public Recording {
 public:
  CapturedLaunches(Stream& stream, FunctionRef<void()> queue) : work_(stream, queue) {}
  void launch(ridge::Stream& stream) const override { work_.launch(cuda_stream(stream)); }

 private:
  CapturedWork work_;
};

RecordingResult CudaBackend::record(ridge::Stream& stream, FunctionRef<void()> queue) {
  try {
    return {std::make_unique<CapturedLaunches>(cuda_stream(stream), queue), {}};
  } catch (const UserError& error) {
    // A library may do something in a launch that a recording forbids. Any other error shows again
    // in the plain launches, one by one.
    return {nullptr, error.message()};
  }
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(DeviceRef device,
                                           Libraries libraries,
                                           std::filesystem::path cubins,
                                           NoteListener note) {
  return std::make_unique<CudaBackend>(
      std::move(device), std::move(libraries), std::move(cubins), std::move(note));
}

}  // namespace ridge::cuda
