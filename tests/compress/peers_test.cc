// Quantized models in Ridge and in ONNX Runtime (./dev peers): the same bytes, the same results.
#include <gtest/gtest.h>

#include <cstdlib>

#include "ridge/compress/calibration.h"
#include "ridge/compress/quantize_model.h"
#include "ridge/io/npy.h"
#include "tests/compress/small_models.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using namespace compress;

struct PeerCase {
  const char* name;
  GraphParts parts;
  Shape sample;
  bool has_conv;
};

std::vector<PeerCase> peer_cases(uint32_t seed) {
  return {{"conv", conv_parts(seed), {1, 3, 8, 8}, true},
          {"mlp", mlp_parts(seed), {1, 16}, false},
          {"attention", attention_parts(seed), {1, 6, 16}, false}};
}

// NAME.onnx with NAME.I.x.npy, NAME.I.y.npy as Ridge has them, and NAME.scale.npy, the size of the
// last step of quantization.
TEST(QuantizedPeers, OnnxRuntimeGivesTheSame) {
  const std::string python = peers_python();
  if (python.empty()) GTEST_SKIP() << kNoPeers;
  const TempFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(cases(5)); ++seed)
    for (const PeerCase& each : peer_cases(seed)) {
      const EditableModel model = editable(model_bytes(each.parts));
      const QuantizeData data = normal_data(each.sample, 16, seed);
      for (const QuantizeMethod method : {QuantizeMethod::kStatic, QuantizeMethod::kDynamic}) {
        QuantizeOptions options{.method = method, .max_drop = 1e9};
        options.equalize = method == QuantizeMethod::kStatic && seed % 2 == 0;
        options.correct_bias = options.equalize;
        options.ranges = static_cast<RangeMethod>(seed % 3);
        const QuantizeResult result = quantize_model(model, data, options);
        const std::string stem = path(fmt::format("{}-{}-{}", each.name, name_of(method), seed));
        result.model.write(stem + ".onnx");
        const SampleOutputs outputs = outputs_on(result.model, data.samples.samples);
        const SampleOutputs floats = outputs_on(model, data.samples.samples);
        for (size_t i = 0; i < 4; ++i) {
          write_npy(fmt::format("{}.{}.x.npy", stem, i), data.samples.samples[i].at("x"));
          write_npy(fmt::format("{}.{}.y.npy", stem, i), outputs[i].at("y"));
          write_npy(fmt::format("{}.{}.f.npy", stem, i), floats[i].at("y"));
        }
      }
    }
  const std::string log = path("log");
  const std::string command =
      fmt::format("'{}' -B tests/compress/check_quantized.py '{}' > '{}' 2>&1",
                  python,
                  folder.path().string(),
                  log);
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(log);
}

}  // namespace
}  // namespace ridge::test
