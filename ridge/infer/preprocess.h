// How pictures become the input of a model that does not say it itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/base/named_enum.h"

namespace ridge {

/// The order of an input's axes: sample, channel, row, column; or channels last.
enum class PictureLayout : uint8_t { kNchw, kNhwc };
constexpr std::string_view names_of(PictureLayout) { return "nchw|nhwc"; }

enum class PictureChannels : uint8_t { kRgb, kBgr };
constexpr std::string_view names_of(PictureChannels) { return "rgb|bgr"; }

/// (value - mean) / deviation of the middle of a picture whose short side was resized, bilinear
/// with antialiasing.
struct Preprocess {
  int64_t resize = 0;  ///< Pixels of the short side.
  int64_t crop = 0;    ///< Height and width of the middle; at most `resize`.
  double scale = 1;    ///< Value of the brightest pixel; the darkest one is 0.
  std::vector<double> mean{0, 0, 0}, deviation{1, 1, 1};  ///< A channel each, as `channels` orders.
  PictureLayout layout = PictureLayout::kNchw;
  PictureChannels channels = PictureChannels::kRgb;
};

/// The one of that name ("imagenet"), or of the TOML file `name`, whose keys are the fields:
/// `resize` and `crop` must be there. UserError, with the place, for a file that cannot be read,
/// and for keys and values that there cannot be.
Preprocess load_preprocess(const std::string& name);

}  // namespace ridge
