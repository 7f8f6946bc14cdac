// The report of `ridge quantize`.
#pragma once

#include <string>

#include "ridge/compress/quantize_model.h"

namespace ridge {

struct QuantizeFiles {
  std::string model;
  std::string floats;                 ///< The ONNX file that it was read from.
  std::string output{}, data_file{};  ///< Empty: not written.
};

struct QuantizeReport {
  const compress::QuantizeResult& result;
  const compress::QuantizeOptions& options;
  const ModelSamples& samples;
  const QuantizeFiles& files;
};

/// ridge.quantize/1.
std::string json_report(const QuantizeReport& report);
std::string text_report(const QuantizeReport& report);

}  // namespace ridge
