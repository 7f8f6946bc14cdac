// Another runtime for ONNX models, in a Python of the user's: a process that keeps the model open,
// runs it when it is told to (peer/runtime_peer.py), and is stopped meanwhile, with all its
// threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/attach/folders/private_folder.h"
#include "ridge/attach/process/program.h"
#include "ridge/base/descriptor.h"
#include "ridge/base/named_enum.h"
#include "ridge/base/tensor.h"
#include "ridge/io/json.h"
#include "ridge/tune/onnx/latency_runner.h"

namespace ridge {

/// A runtime goes by the name of its module in Python.
enum class PeerRuntime : uint8_t { kOnnxRuntime, kOpenVino };
constexpr std::string_view names_of(PeerRuntime) { return "onnxruntime|openvino"; }
/// The name that people know it by.
constexpr std::string_view title_of(PeerRuntime runtime) {
  return runtime == PeerRuntime::kOnnxRuntime ? "ONNX Runtime" : "OpenVINO";
}

struct PeerRequest {
  PeerRuntime runtime = PeerRuntime::kOnnxRuntime;
  std::string python;  ///< See default_python().
  std::string model;   ///< A path.
  int threads = 1;
  const NamedTensors* inputs = nullptr;
  std::string supervisor = "/proc/self/exe";
};

/// The Python of the active environment ($VIRTUAL_ENV), else "python3".
std::string default_python();

class RuntimePeer final : public LatencyRunner {
 public:
  /// Loads the model, with all optimizations of its graph, and runs it once in f32. UserError where
  /// there is no such Python, where it lacks the runtime, and where that cannot run the model.
  explicit RuntimePeer(const PeerRequest& request);
  ~RuntimePeer() override;

  /// UserError where the process has ended.
  std::vector<double> time_runs(int64_t runs) override;

  const std::string& version() const { return version_; }
  /// Seconds from the file to the first result.
  double first_seconds() const { return first_seconds_; }
  /// Growth of its resident memory at the peak meanwhile; nothing where the system does not say.
  std::optional<int64_t> peak_bytes() const { return peak_bytes_; }
  /// The first result, in the order of the model's outputs.
  std::vector<Tensor> outputs() const;

 private:
  JsonValue answer();
  void tell(int64_t runs);
  [[noreturn]] void refuse(const std::string& how_it_ended) const;

  PeerRequest request_;
  attach::PrivateFolder folder_;
  Descriptor orders_, answers_;
  std::optional<attach::Program> program_;
  std::string pending_, version_;
  double first_seconds_ = 0;
  std::optional<int64_t> peak_bytes_;
};

/// The program in Python, by its name.
const std::vector<std::pair<std::string_view, std::string_view>>& peer_files();

}  // namespace ridge
