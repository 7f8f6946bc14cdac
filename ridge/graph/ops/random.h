// Random ops.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// x (S * k..., ...), rng (3) i64 = {seed, step, first sample} -> x times 1 / (1 - p) where the
/// element is kept, else 0; but for f64 the factor and the product are f32. An element is kept when
/// its uniform number (base/philox.h) is at least p; the number is keyed by (seed, step, `key`,
/// global element index), and the index of element i is i + first_sample * elements / `samples`:
/// the same mask whatever micro-batch, fusion or recomputation the element is part of. The uniform
/// number is random_f32({seed, step, hash64(key)}, index), of 24 bits, the hash that of
/// base/hash.h, and is compared with p in f64. Samples must be the outermost factor of axis 0. The
/// gradient is the same op, with the same key, on dy.
class Dropout final : public OpOf<Dropout> {
 public:
  static constexpr OpTraits kTraits{.name = "dropout",
                                    .min_inputs = 2,
                                    .max_inputs = 2,
                                    .dtypes = kFloats,
                                    .op_class = OpClass::kArithmetic,
                                    .gradient = Gradient::kRule,
                                    .linear = {.joint = 1}};
  double p = 0.5;
  std::string key;
  int64_t samples = 1;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// Drops elements with probability p in [0, 1); the key is the node's site. `samples` is the size
/// of the batch that x carries on its first axis (1: x is not batched).
Value dropout(Value x, Value rng, double p, int64_t samples);

}  // namespace ridge
