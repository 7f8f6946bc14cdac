// The CPU backend as one that runs lists of loops at once, or other nodes that it runs op by op:
// what passes make of a graph for such a device, without one.
#pragma once

#include <memory>
#include <utility>

#include "ridge/graph/ops/fused_each.h"
#include "ridge/run/backends.h"

namespace ridge::test {

class ListBackend : public Backend {
 public:
  std::string_view name() const override { return "list"; }
  bool is_host() const override { return true; }
  std::vector<Choice> candidates(const Node& node) const override {
    if (runs(node)) return {{"list", 0}};
    return inner_->candidates(node);
  }
  std::unique_ptr<NodeKernel> instantiate(const Node& node, size_t choice) const override {
    std::unique_ptr<NodeKernel> kernel = inner_->instantiate(node, choice);
    if (!runs(node)) return kernel;
    return std::make_unique<ListKernel>(std::move(kernel), *inner_);
  }
  std::vector<PackedOperand> packed_operands(const Node& node, size_t choice) const override {
    return runs(node) ? std::vector<PackedOperand>() : inner_->packed_operands(node, choice);
  }
  std::unique_ptr<NodeKernel> instantiate_packed(const Node& node, size_t choice) const override {
    return inner_->instantiate_packed(node, choice);
  }
  void* allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void deallocate(void* memory) noexcept override { inner_->deallocate(memory); }
  void copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) override {
    inner_->copy_to_device(stream, device, host, bytes);
  }
  void copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) override {
    inner_->copy_to_host(stream, host, device, bytes);
  }
  void copy_on_device(Stream& stream, void* to, const void* from, size_t bytes) override {
    inner_->copy_on_device(stream, to, from, bytes);
  }
  std::unique_ptr<Stream> make_stream() override { return inner_->make_stream(); }
  Calibration calibrate() override { return inner_->calibrate(); }

 protected:
  /// Whether it has a kernel for a node that is a list, or another of several ops.
  virtual bool runs(const Node& node) const { return node.is<FusedEach>(); }

 private:
  // The node op by op, in memory of its own: a device's kernel needs none for values in between.
  class ListKernel final : public NodeKernel {
   public:
    ListKernel(std::unique_ptr<NodeKernel> plain, Backend& backend)
        : plain_(std::move(plain)), memory_(backend, plain_->workspace_bytes()) {}
    void launch(Stream& stream, const KernelArgs& args) const override {
      plain_->launch(stream, {args.inputs, args.outputs, memory_.get()});
    }

   private:
    std::unique_ptr<NodeKernel> plain_;
    DeviceMemory memory_;
  };

  std::unique_ptr<Backend> inner_ = make_backend("cpu");
};

}  // namespace ridge::test
