// The interface of the kernels of depthwise convolutions of bytes to their driver
// (conv/depthwise_i8.cc).
//
// A block is some channels of all pixels. Kernels multiply some lines of the window at once: of a
// pixel of each of these lines they make a vector in which the bytes of a channel lie side by side.
// Bytes of x are taken as u8: flipping the highest bit of i8 adds 128, and so to its zero point.
#pragma once

#include <cstdint>

namespace ridge::cpu {

/// The weights of a block, and what makes results of its sums, to be prepared.
struct DepthwiseI8Weights {
  const uint8_t* weights;  // (kernel[0], kernel[1], pitch) from the first channel of the block on
  int64_t kernel[2];
  int64_t pitch;
  const uint8_t* zeros;  // zero points of the channels of the block, as the weights lie
  uint8_t flip;          // bits of the weights to flip, so that they are of the kernels' type
  int32_t x_zero;        // the zero point of x as u8
  // The first `count` channels of the block; null: 1 and 0.
  int64_t count;
  const float* scales;
  bool has_scale_each;
  const float* bias;
  const int32_t* sum_bias;
  void* to;  // prepared_bytes() of them, aligned to 64 bytes
};

enum class DepthwiseI8Result : uint8_t { kI32, kF32, kI8, kU8 };

/// A block of a line of the result.
struct DepthwiseI8Line {
  // The lines of x that lines of the window see, filled up to whole groups of lines; those beyond
  // the image have the zero point of x in each pixel. All begin at the block's first channel.
  const uint8_t* const* lines;
  const uint8_t* const* beyond;  // as many, which all are a pixel beyond the image
  int64_t pixel;                 // bytes from a pixel to the next
  int64_t width;                 // pixels of a line of x
  int64_t kernel[2];
  int64_t stride, padding, dilation;  // horizontal
  uint8_t flip;                       // bits of x to flip
  const void* prepared;
  DepthwiseI8Result result;
  int32_t zero, low, high;  // of results of i8 and u8
  void* to;                 // the block's first channel of the first result
  int64_t to_pixel;         // elements from a result to the next
  int64_t count;            // channels to write
  int64_t columns;          // results
};

struct DepthwiseI8Kernels {
  int64_t channels;  // of a block
  int64_t lines;     // of a window that are multiplied at once
  bool has_zeros;    // weights may have zero points
  int64_t (*prepared_bytes)(int64_t down, int64_t across);
  void (*prepare)(const DepthwiseI8Weights&);
  void (*line)(const DepthwiseI8Line&);
};

namespace avx2 {
extern const DepthwiseI8Kernels depthwise_i8_kernels;       // vpmaddwd
extern const DepthwiseI8Kernels depthwise_i8_vnni_kernels;  // vpdpbusd by AVX-VNNI
}  // namespace avx2
namespace avx512 {
extern const DepthwiseI8Kernels depthwise_i8_vnni_kernels;         // vpdpbusd in 512 bits
extern const DepthwiseI8Kernels depthwise_i8_vnni_narrow_kernels;  // the same in 256 bits
}  // namespace avx512

}  // namespace ridge::cpu
