// `ridge quantize MODEL.onnx`: an ONNX model as one of bytes.
#pragma once

namespace CLI {
class App;
}

namespace ridge {

/// Adds the verb, as the functions of cli/verbs.h do.
void add_quantize(CLI::App& app, int& exit_code);

}  // namespace ridge
