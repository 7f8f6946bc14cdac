// Cross-layer equalization (Nagel, van Baalen, Blankevoort, Welling: "Data-free quantization
// through weight equalization and bias correction", ICCV 2019).
#pragma once

#include "ridge/compress/editable_model.h"

namespace ridge::compress {

/// For each pair of convolutions with nothing or one Relu between, whose value nobody else reads: a
/// channel between them is divided by a number in the weights and bias of the first, and multiplied
/// by it in the weights of the second, so that both have weights of about the same size there. The
/// numbers are powers of two: products keep their digits, and so does the function that the model
/// computes. Depthwise convolutions are either side of a pair; pairs are gone through until nothing
/// changes. Returns how many pairs were changed.
int equalize(EditableModel& model);

}  // namespace ridge::compress
