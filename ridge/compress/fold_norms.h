// Batch norms behind convolutions, folded into their weights in the file.
#pragma once

#include "ridge/compress/editable_model.h"

namespace ridge::compress {

/// Folds each BatchNormalization of constants that alone reads the result of a Conv of constant f32
/// weights: weights of a channel times scale / sqrt(var + epsilon), and the bias moved with them,
/// computed in f64 and rounded once. Without it scales of weights would be those before the norm.
/// Returns how many were folded.
int fold_norms(EditableModel& model);

}  // namespace ridge::compress
