// A convolution of known weights that is built when its result is asked for: until then a batch
// norm behind it becomes a part of its weights.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/ops/conv.h"
#include "ridge/import/onnx/import_context.h"

namespace ridge::onnx {

struct LateConvolution {
  std::string site;
  DatumPtr x, weights;  ///< (N, C, H, W) and (O, C / groups, KH, KW); the weights are known.
  WindowFields window;
  int64_t groups = 1;
  /// Numbers of the output channels: the result is that of the weights times scale, plus shift.
  /// Empty: 1 and 0.
  std::vector<double> scale = {}, shift = {};

  /// The same with y * scale + shift of its result y behind it.
  LateConvolution followed_by(const std::vector<double>& scale,
                              const std::vector<double>& shift) const;
  /// The type of its result, (N, H, W, O). UserError where the operands do not go together.
  TensorType result() const;
};

/// A value that is built when it is asked for.
DatumPtr make_datum(std::string name, LateConvolution convolution);

/// Its result as an image.
Value build(ImportContext& import, const LateConvolution& convolution);

}  // namespace ridge::onnx
