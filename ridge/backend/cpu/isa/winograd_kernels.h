// The transforms of Winograd's 3x3 convolution F(2x2, 3x3), of one instruction set (Lavin and Gray,
// "Fast algorithms for convolutional neural networks", 2016). Channels are multiples of 16.
#pragma once

#include <cstdint>

namespace ridge::cpu {

/// Products that a tile of 2x2 results takes, in place of 36.
inline constexpr int kWinogradProducts = 16;

/// Sixteen pixels of `channels` each, rows first, to results `step` elements apart.
struct WinogradInput {
  const float* pixels[16];
  float* to;
  int64_t step;
  int64_t channels;
};

/// Sixteen sums `step` elements apart to four pixels, rows first; null ones are dropped.
struct WinogradOutput {
  const float* from;
  int64_t step;
  float* pixels[4];
  int64_t channels;
};

/// Nine taps, each of `channels`, to sixteen panels' rows: channel c of product p goes to
/// to[p * step + c / width * panel + c % width].
struct WinogradWeights {
  const float* taps[9];
  float* to;
  int64_t step;
  int64_t panel;
  int64_t width;
  int64_t channels;
};

struct WinogradKernels {
  void (*input)(const WinogradInput&);
  void (*output)(const WinogradOutput&);
  void (*weights)(const WinogradWeights&);
};

namespace avx2 {
extern const WinogradKernels winograd_kernels;
}
namespace avx512 {
extern const WinogradKernels winograd_kernels;
}

}  // namespace ridge::cpu
