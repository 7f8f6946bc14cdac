#include "ridge/graph/ops/registry.h"

namespace ridge {

// One function a family, at the end of its file.
void register_source(OpRegistry&);
void register_elementwise(OpRegistry&);
void register_activation(OpRegistry&);
void register_shape(OpRegistry&);
void register_reduce(OpRegistry&);
void register_matmul(OpRegistry&);
void register_matmul_i8(OpRegistry&);
void register_conv_i8(OpRegistry&);
void register_conv(OpRegistry&);
void register_pool(OpRegistry&);
void register_softmax(OpRegistry&);
void register_norm(OpRegistry&);
void register_batch_norm(OpRegistry&);
void register_conv_norm(OpRegistry&);
void register_gather(OpRegistry&);
void register_attention(OpRegistry&);
void register_random(OpRegistry&);
void register_fused(OpRegistry&);
void register_fused_conv(OpRegistry&);
void register_pointwise_depthwise(OpRegistry&);
void register_fused_each(OpRegistry&);
void register_fused_matmul(OpRegistry&);

const OpRegistry& registry() {
  static const OpRegistry ops = [] {
    OpRegistry r;
    register_source(r);
    register_elementwise(r);
    register_activation(r);
    register_shape(r);
    register_reduce(r);
    register_matmul(r);
    register_matmul_i8(r);
    register_conv_i8(r);
    register_conv(r);
    register_pool(r);
    register_softmax(r);
    register_norm(r);
    register_batch_norm(r);
    register_conv_norm(r);
    register_gather(r);
    register_attention(r);
    register_random(r);
    register_fused(r);
    register_fused_conv(r);
    register_pointwise_depthwise(r);
    register_fused_each(r);
    register_fused_matmul(r);
    return r;
  }();
  return ops;
}

void OpRegistry::insert(std::string_view name, Factory factory) {
  const bool is_new = factories_.emplace(name, std::move(factory)).second;
  check_internal(is_new, "two ops are named '{}'", name);
}

std::shared_ptr<Op> OpRegistry::create(std::string_view name) const {
  const auto found = factories_.find(name);
  if (found == factories_.end())
    throw UserError(fmt::format("unknown op '{}'", name), did_you_mean(name, names()));
  return found->second();
}

std::vector<std::string> OpRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

}  // namespace ridge
