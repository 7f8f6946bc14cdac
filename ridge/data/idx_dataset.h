// Images and labels of IDX files: MNIST, Fashion-MNIST.
#pragma once

#include <memory>

#include "ridge/base/tensor.h"
#include "ridge/data/dataset.h"

namespace ridge::data {

/// x f32 [height, width, 1], y i64 []. In training moved by up to `shift` pixels either way (black
/// comes in) and mirrored with probability 1/2 if `flip` says so. Without eval_path a part of the
/// samples, spread evenly, is for evaluation. Sizes, classes and normalization are those of
/// `trained`, which is null for training data alone.
std::unique_ptr<Dataset> open_idx_dataset(const DataOptions& options,
                                          Split split,
                                          const DataDescription* trained);

/// The "x" of the images in a file, [count, height, width, 1], for a model trained on `trained`.
Tensor read_idx_inputs(const std::string& path, const DataDescription& trained);

}  // namespace ridge::data
