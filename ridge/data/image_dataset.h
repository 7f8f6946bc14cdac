// A folder of pictures with one subfolder a class.
#pragma once

#include <memory>
#include <string>

#include "ridge/data/dataset.h"
#include "ridge/data/resize.h"

namespace ridge::data {

/// x f32 [size, size, 3], y i64 []: classes are the subfolders by name, samples the .jpg, .jpeg
/// and .png files of each by name; what a file is its first bytes say. Classes and normalization
/// are those of `trained`, which is null for training data alone.
std::unique_ptr<Dataset> open_image_dataset(const DataOptions& options,
                                            Split split,
                                            const DataDescription* trained);

/// The way from a picture to numbers where no training says it, as torchvision's Resize and
/// CenterCrop go it.
struct PictureForm {
  int64_t short_side = 256;  ///< Pixels of the short side once the picture is resized.
  int64_t size = 224;        ///< Height and width of the middle that is taken; at most short_side.
  Normalization normalization = {};
};

class PictureReader;

/// Reads single pictures as the "x" of samples. For one thread at a time.
class PictureInputs {
 public:
  /// For a model trained on `trained`, cropped as for evaluation.
  PictureInputs(const DataDescription& trained, Crop crop);
  /// Pixels are those of a whole decode, whatever the size of the picture.
  explicit PictureInputs(const PictureForm& form);
  PictureInputs(PictureInputs&&) noexcept;
  ~PictureInputs();

  /// Height and width of what is read.
  int64_t size() const { return size_; }
  /// Writes size x size x 3 numbers. UserError that names the file.
  void read(const std::string& path, float* out);

 private:
  int64_t size_;
  Crop crop_;
  int64_t short_side_;  // 0: as trainings have it
  std::unique_ptr<PictureReader> reader_;
};

}  // namespace ridge::data
