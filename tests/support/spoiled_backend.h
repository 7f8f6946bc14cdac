// The CPU backend with kernels that are wrong on purpose.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ridge/run/backends.h"

namespace ridge::test {

class SpoiledBackend final : public Backend {
 public:
  /// Called after each launch of a node that is spoiled, with its first result.
  using Spoil = std::function<void(std::span<float>)>;
  using IsSpoiled = std::function<bool(const Node&)>;
  SpoiledBackend(IsSpoiled is_spoiled, Spoil spoil)
      : is_spoiled_(std::move(is_spoiled)), spoil_(std::move(spoil)) {}

  std::string_view name() const override { return "cpu"; }
  bool is_host() const override { return true; }
  std::vector<Choice> candidates(const Node& node) const override {
    return inner_->candidates(node);
  }
  std::unique_ptr<NodeKernel> instantiate(const Node& node, size_t choice) const override {
    return spoiled(node, inner_->instantiate(node, choice));
  }
  std::vector<PackedOperand> packed_operands(const Node& node, size_t choice) const override {
    return inner_->packed_operands(node, choice);
  }
  std::unique_ptr<NodeKernel> instantiate_packed(const Node& node, size_t choice) const override {
    return spoiled(node, inner_->instantiate_packed(node, choice));
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

 private:
  class SpoiledKernel final : public NodeKernel {
   public:
    SpoiledKernel(std::unique_ptr<NodeKernel> right, Spoil spoil, int64_t elements)
        : right_(std::move(right)), spoil_(std::move(spoil)), elements_(elements) {}
    size_t workspace_bytes() const override { return right_->workspace_bytes(); }
    void launch(Stream& stream, const KernelArgs& args) const override {
      right_->launch(stream, args);
      spoil_({static_cast<float*>(args.outputs[0]), static_cast<size_t>(elements_)});
    }

   private:
    std::unique_ptr<NodeKernel> right_;
    Spoil spoil_;
    int64_t elements_;
  };

  std::unique_ptr<NodeKernel> spoiled(const Node& node, std::unique_ptr<NodeKernel> kernel) const {
    if (!is_spoiled_(node)) return kernel;
    return std::make_unique<SpoiledKernel>(std::move(kernel), spoil_, node.outputs[0].elements());
  }

  IsSpoiled is_spoiled_;
  Spoil spoil_;
  std::unique_ptr<Backend> inner_ = make_backend("cpu");
};

}  // namespace ridge::test
