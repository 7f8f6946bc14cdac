// A folder of pictures with one subfolder a class.
#pragma once

#include <memory>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// x f32 [size, size, 3], y i64 []: classes are the subfolders by name, samples the .jpg, .jpeg
/// and .png files of each by name; what a file is its first bytes say. Classes and normalization
/// are those of `trained`, which is null for training data alone.
std::unique_ptr<Dataset> open_image_dataset(const DataOptions& options,
                                            Split split,
                                            const DataDescription* trained);

}  // namespace ridge::data
