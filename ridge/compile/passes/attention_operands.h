// The operands of an attention as they lay before they were moved into heads.
#pragma once

#include "ridge/graph/ops/attention.h"

namespace ridge {

/// q (B, H, T, D), k (B, H, S, D), or (B, H, D, S) where it `is_transposed`, and v (B, H, S, E).
struct AttentionHeads {
  Value q, k, v;
  bool is_transposed = false;
};

/// y (B, H, T, E) of an attention that reads what these heads were made from: tokens before heads,
/// or packed. Null where they are not made by moving axes.
Value attention_before_heads(const AttentionHeads& heads, AttentionOptions options);

}  // namespace ridge
