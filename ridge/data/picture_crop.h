// Which part of a picture becomes a sample, and the sample's pixels.
#pragma once

#include <memory>

#include "ridge/data/options.h"
#include "ridge/data/order.h"
#include "ridge/data/resize.h"
#include "ridge/data/stored_picture.h"
#include "ridge/io/jpeg.h"
#include "ridge/io/png.h"

namespace ridge::data {

/// A box of the picture in (fractional) pixels that is resized to the sample.
struct CropBox {
  double x = 0, y = 0, width = 0, height = 0;
  bool exclusive = false;  ///< Pixels outside of the box have no weight: cropped before the resize.
  bool mirrored = false;
  bool reduces =
      true;  ///< A JPEG may be decoded at a fraction of its size, which is another filter.
};

/// Area 0.08 to 1 of the picture's, ratio of the sides 3/4 to 4/3, as torchvision's
/// RandomResizedCrop draws them: ten attempts, then the largest central box within the ratios.
CropBox random_crop(const PictureSize& size, SampleRandom& random);

/// The lower bound, in pixels, of both sides of any random_crop of such a picture.
double smallest_random_side(const PictureSize& size);

/// The central target x target pixels once the short side has `short_side` of them, at least
/// `target`: as torchvision's Resize and CenterCrop place them.
CropBox center_crop(const PictureSize& size, int64_t target, int64_t short_side);
/// The same with the short side of evaluations, target * 256 / 224.
CropBox center_crop(const PictureSize& size, int64_t target);

/// The largest reduction (1, 2, 4, 8) that leaves a box of at least target x target pixels.
int reduction_for(const CropBox& box, int64_t target);

/// Turns the bytes of a JPEG or PNG file into target x target x 3 f32. Holds the memory for it;
/// for one thread at a time.
class PictureReader {
 public:
  PictureReader(int64_t target, const Normalization& normalization);

  /// UserError for bytes that are neither, or damaged.
  PictureSize open(std::span<const std::byte> file);
  /// One that was decoded before.
  PictureSize open(const StoredPicture& picture);
  /// Reads `box` of the opened picture into `out`.
  void read(const CropBox& box, float* out);

  int64_t bytes() const;

 private:
  int64_t target_;
  JpegDecoder jpeg_;
  PngDecoder png_;
  StoredPictureDecoder stored_;
  Resizer resizer_;
  PictureDecoder* decoder_ = nullptr;  // the opened one
  PictureSize size_;
};

}  // namespace ridge::data
