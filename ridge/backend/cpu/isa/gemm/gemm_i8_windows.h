// Rows of an operand of bytes that lie nowhere: windows over images.
#pragma once

#include <cstdint>

namespace ridge::cpu {

/// Row (n, i, j) of the operand holds, for each element of a window from the first of its first
/// line on, `channels` bytes of the pixel of image n that the element sees, or `beyond` where there
/// is none. Pairs are vertical, horizontal.
struct GemmI8Windows {
  const uint8_t* images = nullptr;  ///< The first channel wanted of the first pixel.
  int64_t bytes = 0;                ///< From there to the end of all images.
  int64_t size[2] = {};             ///< Pixels of an image.
  int64_t pitch = 0;                ///< Bytes from a pixel to the next.
  int64_t channels = 0;
  int64_t windows[2] = {};  ///< An image has so many.
  int64_t kernel[2] = {};
  int64_t stride[2] = {};
  int64_t padding[2] = {};  ///< Before the first pixel.
  int64_t dilation[2] = {};
  uint8_t beyond = 0;
};

}  // namespace ridge::cpu
