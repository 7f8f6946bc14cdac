// ONNX's own tests of its operators, which its package brings as data (./dev peers installs it):
// all that are imported give the numbers there, and node_status.txt lists those that are refused,
// with the importer's reason. Each runs twice: with its inputs as data of the run, as far as
// operators allow it, and with all of them known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "ridge/import/onnx/elements.h"
#include "tests/import/run_model.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStatus = "tests/import/node_status.txt";

// The package's test data; empty where the peers are not installed.
fs::path test_data() {
  const std::string python = peers_python();
  if (python.empty()) return {};
  const fs::path library = fs::path(python).parent_path().parent_path() / "lib";
  std::error_code error;
  for (const auto& version : fs::directory_iterator(library, error)) {
    const fs::path data = version.path() / "site-packages/onnx/backend/test/data";
    if (fs::exists(data / "node")) return data;
  }
  return {};
}

// A tensor of a .pb file; nothing where it is none of Ridge's.
std::optional<Tensor> read_tensor(const fs::path& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  const onnx::TensorProto proto = onnx::parse_tensor(file->bytes(), path.string());
  if (!onnx::dtype_of_onnx(proto.data_type)) return std::nullopt;
  if (std::find(proto.dims.begin(), proto.dims.end(), 0) != proto.dims.end()) return std::nullopt;
  return onnx::ElementFiles({}, file).read(proto).tensor();
}

// The tensors PREFIX_0.pb, PREFIX_1.pb and so on; nothing where one is none of Ridge's.
std::optional<std::vector<Tensor>> read_tensors(const fs::path& folder, const std::string& prefix) {
  std::vector<Tensor> tensors;
  for (int i = 0; fs::exists(folder / fmt::format("{}_{}.pb", prefix, i)); ++i) {
    try {
      auto tensor = read_tensor(folder / fmt::format("{}_{}.pb", prefix, i));
      if (!tensor) return std::nullopt;
      tensors.push_back(std::move(*tensor));
    } catch (const UserError&) {
      return std::nullopt;  // a sequence, say
    }
  }
  return tensors;
}

// Says how the results differ; empty where they do not.
std::string difference(const Tensor& got, const Tensor& expected) {
  if (got.type() != expected.type())
    return fmt::format("{} for {}", to_string(got.type()), to_string(expected.type()));
  const bool is_short = size_of(got.type().dtype) == 2;
  const double relative = is_short ? 1e-2 : 1e-3, absolute = is_short ? 2e-3 : 1e-5;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double a = got.at(i), b = expected.at(i);
    const bool is_equal = a == b || (std::isnan(a) && std::isnan(b));
    const bool is_near =
        is_float(got.type().dtype) && std::abs(a - b) <= absolute + relative * std::abs(b);
    if (!is_equal && !is_near) return fmt::format("element {} is {} for {}", i, a, b);
  }
  return {};
}

struct Case {
  fs::path model;
  std::vector<Tensor> inputs, outputs;
};

std::optional<Case> read_case(const fs::path& folder) {
  auto inputs = read_tensors(folder / "test_data_set_0", "input");
  auto outputs = read_tensors(folder / "test_data_set_0", "output");
  if (!inputs || !outputs) return std::nullopt;
  return Case{folder / "model.onnx", std::move(*inputs), std::move(*outputs)};
}

// How many of the inputs are known: none, integers but the first, all but the first, all.
enum class KnownInputs { kNone, kIntegers, kOthers, kAll };

bool is_known(KnownInputs which, size_t input, const Tensor& tensor) {
  if (which == KnownInputs::kIntegers) return input > 0 && !is_float(tensor.type().dtype);
  return which == KnownInputs::kAll || (which == KnownInputs::kOthers && input > 0);
}

// Empty: it passed. A UserError is a refusal.
std::string run_case(const Case& test, KnownInputs which) {
  const OnnxModel model(test.model);
  NamedTensors inputs, fixed;
  if (model.inputs().size() != test.inputs.size()) return "the model has other inputs";
  for (size_t i = 0; i < test.inputs.size(); ++i)
    (is_known(which, i, test.inputs[i]) ? fixed : inputs)
        .emplace(model.inputs()[i].name, test.inputs[i]);
  // Outputs may be left out.
  const NamedTensors outputs = run_model(model, inputs, fixed);
  const std::vector<std::string> names = model.outputs();
  if (names.size() < test.outputs.size()) return "the model has fewer outputs";
  for (size_t i = 0; i < test.outputs.size(); ++i) {
    const std::string wrong = difference(outputs.at(names[i]), test.outputs[i]);
    if (!wrong.empty()) return fmt::format("output '{}': {}", names[i], wrong);
  }
  return {};
}

// The importer's reason without names of files and nodes: "Det: the operator is not supported".
std::string reason_of(const std::string& message) {
  const size_t line = message.find("\n  ");
  if (line == std::string::npos) {
    const size_t model = message.find(".onnx: ");
    return model == std::string::npos ? message : message.substr(model + 7);
  }
  const size_t begin = message.find(" x ", line) + 3;
  const size_t end = std::min(message.find(" (", begin), message.find('\n', begin));
  return message.substr(begin, end - begin);
}

struct Outcome {
  std::string refusal;  ///< Empty: it was imported.
  std::string wrong;    ///< Empty: its numbers are right.
};

Outcome outcome_of(const Case& test) {
  Outcome outcome;
  for (const KnownInputs which :
       {KnownInputs::kNone, KnownInputs::kIntegers, KnownInputs::kOthers}) {
    try {
      outcome = {{}, run_case(test, which)};
      break;
    } catch (const UserError& error) {
      outcome.refusal = reason_of(error.message());
    }
    if (outcome.refusal.find("data of a run") == std::string::npos) break;
  }
  // With all inputs known it gives the same; what needs them known is imported so alone.
  const bool needs_all = outcome.refusal.find("data of a run") != std::string::npos;
  if (!outcome.wrong.empty() || (!outcome.refusal.empty() && !needs_all)) return outcome;
  try {
    outcome = {{}, run_case(test, KnownInputs::kAll)};
    if (!outcome.wrong.empty()) outcome.wrong = "all inputs known: " + outcome.wrong;
  } catch (const UserError& error) {
    outcome.refusal = reason_of(error.message());
  }
  return outcome;
}

// Names of tests that are refused, by reason.
using Refused = std::map<std::string, std::set<std::string>>;

Refused read_status() {
  Refused refused;
  std::ifstream file(kStatus);
  std::string line, reason;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("  "))
      refused[reason].insert(line.substr(2));
    else
      reason = line;
  }
  return refused;
}

void write_status(const Refused& refused, size_t plain) {
  size_t count = 0;
  for (const auto& [reason, names] : refused) count += names.size();
  std::ofstream file(kStatus);
  file << fmt::format(
      "# Tests of ONNX's operators that the importer refuses: the reason, and below it their "
      "names.\n"
      "# {} of {} with tensors of Ridge's dtypes. RIDGE_WRITE_NODE_STATUS=1 makes test_import "
      "write it.\n",
      count,
      plain);
  for (const auto& [reason, names] : refused) {
    file << '\n' << reason << '\n';
    for (const std::string& name : names) file << "  " << name << '\n';
  }
}

TEST(OnnxNodeTests, GiveOnnxsNumbers) {
  const fs::path data = test_data();
  if (data.empty()) GTEST_SKIP() << kNoPeers;
  std::vector<fs::path> folders;
  for (const auto& folder : fs::directory_iterator(data / "node")) folders.push_back(folder.path());
  std::sort(folders.begin(), folders.end());
  const bool writes = std::getenv("RIDGE_WRITE_NODE_STATUS") != nullptr;
  const Refused known = read_status();
  std::map<std::string, std::string> known_reason;
  for (const auto& [reason, names] : known)
    for (const std::string& name : names) known_reason[name] = reason;
  Refused refused;
  size_t plain = 0, passed = 0;
  for (size_t i = 0; i < folders.size(); ++i) {
    if (!writes && !is_drawn(i, 8)) continue;
    const std::string name = folders[i].filename().string();
    const auto test = read_case(folders[i]);
    if (!test) continue;
    ++plain;
    const Outcome outcome = outcome_of(*test);
    EXPECT_EQ(outcome.wrong, "") << name;
    if (!outcome.refusal.empty()) refused[outcome.refusal].insert(name);
    passed += outcome.refusal.empty() && outcome.wrong.empty() ? 1 : 0;
    const auto listed = known_reason.find(name);
    if (!writes) {
      EXPECT_EQ(outcome.refusal, listed == known_reason.end() ? "" : listed->second) << name;
    }
  }
  if (writes) write_status(refused, plain);
  RecordProperty("plain", static_cast<int>(plain));
  EXPECT_GE(static_cast<double>(passed), 0.7 * static_cast<double>(plain));
}

TEST(OnnxNodeTests, LightModelsRun) {
  const fs::path data = test_data();
  if (data.empty()) GTEST_SKIP() << kNoPeers;
  size_t count = 0;
  for (const auto& file : fs::directory_iterator(data / "light")) {
    const std::string name = file.path().stem().string();
    if (file.path().extension() != ".onnx") continue;
    if (!is_drawn(count++, 4)) continue;
    SCOPED_TRACE(name);
    const OnnxModel model(file.path());
    ASSERT_EQ(model.inputs().size(), 1u);
    Shape shape;
    for (const Dim& dim : model.inputs()[0].dims) shape.push_back(std::max<int64_t>(dim.size, 1));
    Tensor x({DType::kF32, shape});
    for (int64_t i = 0; i < x.elements(); ++i)
      x.set(i, static_cast<double>(i) / static_cast<double>(x.elements()));
    const NamedTensors outputs = run_model(model, {{model.inputs()[0].name, x}});
    const auto expected = read_tensor(data / "light" / (name + "_output_0.pb"));
    ASSERT_TRUE(expected.has_value());
    EXPECT_EQ(difference(outputs.at(model.outputs()[0]), *expected), "");
  }
}

}  // namespace
}  // namespace ridge::test
