// Nodes of products of bytes as calls of gemm_i8().
#pragma once

#include "ridge/backend/cpu/gemm/gemm_i8.h"
#include "ridge/backend/host.h"
#include "ridge/graph/ops/product_i8.h"

namespace ridge::cpu {

/// The operands and results of a node of the op `op`, from some column of the result on.
class I8Arguments {
 public:
  I8Arguments(const Node& node, const ProductI8& op);

  I8Operands operands(const KernelArgs& args, int64_t column = 0) const;
  I8Results results(const KernelArgs& args, int64_t column = 0) const;

 private:
  DType to_;
  bool is_scaled_, is_rounded_;
  int32_t low_, high_;
  bool a_zero_each_, b_zero_each_, scale_each_;
  size_t bias_;  // 0: none
  bool bias_is_of_sum_;
};

/// The operand b, constant weights whose dimensions but one make up the depth of such a product, as
/// pack_i8() packs it.
PackedOperand packed_i8_operand(const GemmShape& shape);

}  // namespace ridge::cpu
