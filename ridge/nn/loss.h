// Losses as sums over what counts, so that micro-batches add up to the whole batch.
#pragma once

#include "ridge/nn/model.h"

namespace ridge::nn {

/// Targets with this label do not count.
inline constexpr int64_t kIgnoreLabel = -100;

/// Scalars of the logits' accumulate dtype (f64 for f64, else f32).
struct LossSums {
  Value loss;   ///< Over all targets that count.
  Value count;  ///< How many they are.
};

/// logits (..., C), integer labels (...): cross-entropy. Labels of kIgnoreLabel do not count.
LossSums cross_entropy_sums(Value logits, Value labels);

/// predictions and targets of equally many elements and the same batch: squared errors, each
/// element counted.
LossSums squared_error_sums(Value predictions, Value targets);

/// The loss that goes with the model's targets `y` (B, ...).
LossSums loss_sums(const Model& model, Value logits, Value y);

/// logits (..., C), integer labels (...): how many labels the largest logit names, as a scalar of
/// the logits' accumulate dtype. A walk over all logits, and no part of a training step.
Value count_correct(Value logits, Value labels);

}  // namespace ridge::nn
