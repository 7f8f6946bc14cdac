// A folder of pictures with one subfolder a class.
#pragma once

#include <memory>
#include <string>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// x f32 [size, size, 3], y i64 []: classes are the subfolders by name, samples the .jpg, .jpeg
/// and .png files of each by name; what a file is its first bytes say. Classes and normalization
/// are those of `trained`, which is null for training data alone.
std::unique_ptr<Dataset> open_image_dataset(const DataOptions& options,
                                            Split split,
                                            const DataDescription* trained);

class PictureReader;

/// Reads the "x" of single pictures for a model trained on `trained`, cropped as for evaluation.
/// For one thread at a time.
class PictureInputs {
 public:
  PictureInputs(const DataDescription& trained, Crop crop);
  ~PictureInputs();

  /// Writes size x size x 3 numbers. UserError that names the file.
  void read(const std::string& path, float* out);

 private:
  int64_t size_;
  Crop crop_;
  std::unique_ptr<PictureReader> reader_;
};

}  // namespace ridge::data
