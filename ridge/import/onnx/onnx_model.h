// ONNX models: a file, and the graph of it for a binding of its named dimensions.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/graph/data_spec.h"
#include "ridge/graph/program_graphs.h"
#include "ridge/io/file.h"

namespace ridge {

/// Whether a batch norm behind a convolution becomes a part of its weights, which rounds them.
enum class ConvNorms : uint8_t { kFolded, kAsWritten };

/// Any thread may call any function at any time.
class OnnxModel {
 public:
  /// Maps the file. UserError when it cannot be read, is no ONNX model or a damaged one, is of a
  /// version that is not read, or lacks a file of external data or the end of one.
  explicit OnnxModel(const std::filesystem::path& path);
  /// The same of a model in memory, which `owner` keeps. Its external data lie beside the file
  /// `beside`; where that is empty it has none.
  OnnxModel(Bytes bytes,
            std::shared_ptr<const void> owner,
            std::string name,
            const std::filesystem::path& beside = {});
  ~OnnxModel();
  OnnxModel(OnnxModel&&) noexcept;

  /// Its file, for messages.
  const std::string& name() const;
  /// The inputs that a run needs. A size without name or number gets the name "INPUT.AXIS".
  const std::vector<DataSpec>& inputs() const { return inputs_; }
  std::vector<std::string> outputs() const;
  /// The outputs as the file declares them, by dtype and number of dimensions: sizes are
  /// "NAME.AXIS", for declared ones are often wrong. UserError where it leaves something out.
  std::vector<DataSpec> declared_outputs() const;
  /// The dimension of samples: the first one that is named of those that inputs begin with, where
  /// no input has it elsewhere; empty: there is none. In graphs it carries the batch.
  const std::string& batch_dim() const { return batch_dim_; }

  /// The graph for sizes of all named dimensions, and the constants that it reads. `fixed` gives
  /// inputs values that are then the same in all runs. UserError that tells every node that cannot
  /// be imported, with the reason, before anything runs (UnsupportedModel where that is so for any
  /// binding); or for a binding or a fixed input that does not suit.
  ProgramGraphs import(const Binding& binding = {},
                       const NamedTensors& fixed = {},
                       ConvNorms norms = ConvNorms::kFolded) const;

 private:
  struct Parsed;
  void read_inputs();
  void read_batch_dim();

  std::unique_ptr<Parsed> parsed_;
  std::vector<DataSpec> inputs_;
  std::string batch_dim_;
};

}  // namespace ridge
