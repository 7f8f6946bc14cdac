// The base of backends on the host: kernels that are functions, a table of them, host memory, and
// streams that run inline or on a thread of their own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/backend/backend.h"

namespace ridge {

/// A kernel that runs on the calling thread and the pool.
class HostKernel final : public NodeKernel {
 public:
  using Run = std::function<void(const KernelArgs&)>;
  explicit HostKernel(Run run, size_t workspace_bytes = 0)
      : run_(std::move(run)), workspace_bytes_(workspace_bytes) {}

  size_t workspace_bytes() const override { return workspace_bytes_; }
  void launch(Stream& stream, const KernelArgs& args) const override;
  void run(const KernelArgs& args) const { run_(args); }

 private:
  Run run_;
  size_t workspace_bytes_;
};

/// The form of a kernel for packed operands (Backend::packed_operands()); empty where it has none.
struct PackedForm {
  std::function<std::vector<PackedOperand>(const Node&)> operands = nullptr;
  std::function<std::unique_ptr<HostKernel>(const Node&)> make = nullptr;
};

/// The kernels of a backend, by op. Rows of one op are its choices, in the order of addition.
class KernelTable {
 public:
  using Make = std::function<std::unique_ptr<HostKernel>(const Node&)>;
  using Accepts = std::function<bool(const Node&)>;

  /// Adds a choice for the ops named `op`; `accepts` may refuse a node (null: takes all).
  void add(std::string_view op,
           Choice choice,
           Make make,
           Accepts accepts = nullptr,
           PackedForm packed = {});

  std::vector<Choice> candidates(const Node& node) const;
  /// InternalError when there is no such candidate.
  std::unique_ptr<HostKernel> instantiate(const Node& node, size_t choice) const;
  std::vector<PackedOperand> packed_operands(const Node& node, size_t choice) const;
  /// InternalError where the choice packs nothing.
  std::unique_ptr<HostKernel> instantiate_packed(const Node& node, size_t choice) const;

 private:
  struct Row {
    Choice choice;
    Make make;
    Accepts accepts;
    PackedForm packed;
  };
  std::vector<const Row*> rows(const Node& node) const;
  const Row& row(const Node& node, size_t choice) const;
  std::map<std::string, std::vector<Row>, std::less<>> rows_;
};

/// A kernel that runs the node's plain form, op after op, by the first kernels of `table`; its
/// workspace holds all values in between. `table` must outlive the call. Null when the node has no
/// plain form or an op of it no kernel.
std::unique_ptr<HostKernel> make_expanded(const Node& node, const KernelTable& table);

enum class StreamMode : uint8_t {
  kInline,  ///< Work runs in the call that queues it.
  kThread,  ///< Work runs on a thread of the stream: what a device does, without a device.
};

/// A stream of the host. With kThread, at most 4096 pieces of work wait; queueing more blocks.
std::unique_ptr<Stream> make_host_stream(StreamMode mode);

/// True for a stream of kInline; InternalError for one of another backend.
bool runs_inline(Stream& stream);

/// Queues a function on a host stream of kThread.
void enqueue_host_function(Stream& stream, std::function<void()> work);

/// Queues any function on a host stream (InternalError on another's); allocates nothing where it
/// runs at once.
template <typename Work>
void enqueue_host(Stream& stream, Work&& work) {
  if (runs_inline(stream))
    work();
  else
    enqueue_host_function(stream, std::forward<Work>(work));
}

/// The parts of a Backend that are the same for every backend on the host.
class HostBackend : public Backend {
 public:
  HostBackend(std::string name, KernelTable table, StreamMode mode)
      : name_(std::move(name)), table_(std::move(table)), mode_(mode) {}

  std::string_view name() const override { return name_; }
  bool is_host() const override { return true; }
  bool is_asynchronous() const override { return mode_ == StreamMode::kThread; }
  std::vector<Choice> candidates(const Node& node) const override {
    return table_.candidates(node);
  }
  std::unique_ptr<NodeKernel> instantiate(const Node& node, size_t choice) const override {
    return table_.instantiate(node, choice);
  }
  std::vector<PackedOperand> packed_operands(const Node& node, size_t choice) const override {
    return table_.packed_operands(node, choice);
  }
  std::unique_ptr<NodeKernel> instantiate_packed(const Node& node, size_t choice) const override {
    return table_.instantiate_packed(node, choice);
  }
  void* allocate(size_t bytes) override;
  void* allocate_zeros(size_t bytes) override;
  void deallocate(void* memory) noexcept override;
  void copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) override;
  void copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) override;
  void copy_on_device(Stream& stream, void* to, const void* from, size_t bytes) override;
  std::unique_ptr<Stream> make_stream() override { return make_host_stream(mode_); }

 private:
  std::string name_;
  KernelTable table_;
  StreamMode mode_;
};

/// Measured: read + written bytes per second of a large copy by all threads.
double measure_copy_bandwidth();
/// Measured: seconds to launch an empty host kernel on an inline stream.
double measure_launch_seconds();

}  // namespace ridge
