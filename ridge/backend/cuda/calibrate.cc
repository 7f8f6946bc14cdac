// Measurements of a GPU, with products by the backend's own kernels.
#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "ridge/backend/cuda/cuda_backend.h"
#include "ridge/backend/cuda/device_rates.h"
#include "ridge/backend/cuda/driver/node_kernel.h"
#include "ridge/base/philox.h"
#include "ridge/base/tensor.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

// A node by its first kernel, on operands of random numbers.
class Product {
 public:
  Product(Backend& backend, ridge::Stream& stream, const Node& node)
      : stream_(stream), kernel_(backend.instantiate(node, 0)) {
    for (const Value& value : node.inputs) inputs_.push_back(random_operand(backend, value.type()));
    for (const TensorType& type : node.outputs)
      outputs_.push_back(add_memory(backend, static_cast<size_t>(type.bytes())));
    workspace_ = add_memory(backend, kernel_->workspace_bytes());
    stream.synchronize();
    kernel_->prepare();
  }
  void launch() const { kernel_->launch(stream_, {inputs_, outputs_, workspace_}); }

 private:
  void* add_memory(Backend& backend, size_t bytes) {
    memory_.emplace_back(backend, bytes);
    return memory_.back().get();
  }
  // The same numbers again and again: a GPU's power goes by how bits change from one to the next,
  // which they do as in data of which each is drawn.
  void* random_operand(Backend& backend, const TensorType& type) {
    const int64_t count = std::min<int64_t>(type.elements(), 1 << 16);
    Tensor drawn({type.dtype, {count}});
    for (int64_t i = 0; i < count; ++i)
      drawn.set(i, random_normal({.seed = 1}, static_cast<uint64_t>(i)));
    const auto bytes = static_cast<size_t>(type.bytes());
    auto* const to = static_cast<std::byte*>(add_memory(backend, bytes));
    for (size_t at = 0; at < bytes; at += drawn.bytes())
      backend.copy_to_device(stream_, to + at, drawn.data(), std::min(drawn.bytes(), bytes - at));
    stream_.synchronize();
    return to;
  }

  ridge::Stream& stream_;
  std::unique_ptr<NodeKernel> kernel_;
  std::vector<DeviceMemory> memory_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  void* workspace_ = nullptr;
};

}  // namespace

Calibration calibrate(Backend& backend, const DeviceRef& device) {
  device->ensure_current();
  const std::unique_ptr<ridge::Stream> stream = backend.make_stream();
  const auto make_product = [&](DType dtype, int64_t edge) -> std::function<void()> {
    Graph graph("product");
    const TensorType type{dtype, {edge, edge}};
    const Node& node = *matmul(input(graph, "a", type), input(graph, "b", type)).node;
    if (backend.candidates(node).empty()) return nullptr;
    const auto product = std::make_shared<const Product>(backend, *stream, node);
    return [product] { product->launch(); };
  };
  return measure_device(cuda_stream(*stream), make_product);
}

}  // namespace ridge::cuda
