// Made-up photographs of four textures, for examples and benchmarks of the image loader.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ridge/data/order.h"
#include "ridge/io/picture.h"

namespace ridge::tools {

inline constexpr std::array kTextureNames{"checks", "dots", "rings", "stripes"};

struct TexturePicture {
  PictureSize size;
  std::vector<uint8_t> pixels;  // RGB
};

/// How far (0 to 1) a point lies between the two colours of texture `label`; u and v are in
/// periods of the texture.
inline double texture_at(int64_t label, double u, double v) {
  constexpr double kTurn = 6.283185307179586;
  switch (label) {
    case 0:
      return std::sin(kTurn * u) * std::sin(kTurn * v) > 0 ? 1.0 : 0.0;
    case 1:
      return std::hypot(u - std::floor(u) - 0.5, v - std::floor(v) - 0.5) < 0.3 ? 1.0 : 0.0;
    case 2: {
      // A centre every few periods: far from the only one, rings would be stripes.
      constexpr double kBetween = 6;
      return 0.5 + 0.5 * std::sin(kTurn * std::hypot(u - kBetween * std::round(u / kBetween),
                                                     v - kBetween * std::round(v / kBetween)));
    }
    default:
      return 0.5 + 0.5 * std::sin(kTurn * u);
  }
}

/// Picture `number` of texture `label`: about 500 x 400 pixels; angle, period, colours, lighting
/// and grain differ from picture to picture.
inline TexturePicture texture_picture(int64_t label, int64_t number, uint64_t seed) {
  data::SampleRandom random({.seed = seed, .epoch = label, .sample = number});
  TexturePicture picture;
  picture.size = {440 + random.below(121), 340 + random.below(121)};
  const double angle = 3.1 * random.uniform(), period = 14 + 40 * random.uniform();
  const double across = std::cos(angle) / period, down = std::sin(angle) / period;
  const double middle_x = 500 * random.uniform(), middle_y = 400 * random.uniform();
  std::array<double, 3> low{}, high{};
  for (size_t c = 0; c < 3; ++c) {
    low[c] = 130 * random.uniform();
    high[c] = 120 + 110 * random.uniform();
  }
  const double light = 0.5 * random.uniform();
  uint32_t grain = static_cast<uint32_t>(random.below(1 << 30));
  for (int64_t y = 0; y < picture.size.height; ++y)
    for (int64_t x = 0; x < picture.size.width; ++x) {
      const double dx = static_cast<double>(x) - middle_x, dy = static_cast<double>(y) - middle_y;
      const double part = texture_at(label, dx * across + dy * down, dy * across - dx * down);
      const double shade =
          1 - light * static_cast<double>(y) / static_cast<double>(picture.size.height);
      grain = grain * 1664525 + 1013904223;  // Numerical Recipes' generator: grain needs no better
      const double noise = static_cast<double>(grain >> 24) / 8 - 16;
      for (size_t c = 0; c < 3; ++c)
        picture.pixels.push_back(static_cast<uint8_t>(std::lround(
            std::fmin(std::fmax((low[c] + (high[c] - low[c]) * part) * shade + noise, 0), 255))));
    }
  return picture;
}

}  // namespace ridge::tools
