// An ONNX model whose nodes and initializers can be replaced. All that is not replaced keeps the
// bytes that the file has for it, those of fields that Ridge does not know included.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/base/tensor.h"
#include "ridge/export/onnx/data_file.h"
#include "ridge/export/onnx/messages.h"
#include "ridge/graph/data_spec.h"
#include "ridge/import/onnx/elements.h"
#include "ridge/import/onnx/model_proto.h"

namespace ridge::compress {

/// A message as the file has it, or one that was made since.
struct Part {
  Bytes bytes;
  std::shared_ptr<const void> owner;
};

struct EditableNode {
  onnx::NodeProto proto;
  Part part;
};

struct EditableTensor {
  onnx::TensorProto proto;
  Part part;
};

/// A copy shares the bytes of what neither replaces.
class EditableModel {
 public:
  /// Maps the file. UserError as OnnxModel has it.
  explicit EditableModel(const std::filesystem::path& path);
  /// The same of a model in memory, which `owner` keeps; it has no external data.
  EditableModel(Bytes bytes, std::shared_ptr<const void> owner, std::string name);

  /// Its file, for messages; and the path that external data lie beside, empty in memory.
  const std::string& name() const { return name_; }
  const std::filesystem::path& path() const { return path_; }
  /// The version of ONNX's own operators; 0: it uses none.
  int64_t opset() const { return opset_; }

  /// The nodes of the model's graph, in order.
  std::vector<EditableNode>& nodes() { return nodes_; }
  const std::vector<EditableNode>& nodes() const { return nodes_; }
  const std::vector<onnx::ValueInfo>& outputs() const { return outputs_; }

  /// How often a name is read: by nodes, by those of graphs inside of them, and as an output.
  std::map<std::string, int> uses() const;

  /// The initializer of that name, or the value of the node Constant that makes it; else null. It
  /// is valid until the model is changed.
  const onnx::TensorProto* constant(const std::string& name) const;
  /// The elements of such a tensor. UserError as ElementFiles::read() has it.
  onnx::Known elements(const onnx::TensorProto& tensor) const;

  /// A name that nothing has: `wish`, maybe with a number behind it. It is taken from now on.
  std::string new_name(const std::string& wish);
  /// Adds an initializer. InternalError where there is one of that name.
  void add_initializer(const std::string& name, const Tensor& tensor);
  /// Adds an input of the model.
  void add_input(const DataSpec& spec);
  /// The model of these nodes alone, with those inputs and the constants that the nodes read. It
  /// has no output but those that bytes_to_run() is asked for.
  EditableModel slice(std::vector<EditableNode> nodes, const std::vector<DataSpec>& inputs) const;
  /// Removes initializers, nodes Constant and inputs of the same name that nobody reads any more,
  /// of those that are in `names`.
  void remove_unused(const std::set<std::string>& names);

  /// The whole model. Elements in other files stay there.
  std::string bytes() const;
  /// The same with inputs of those shapes, and with more outputs, whose types are not declared.
  std::string bytes_to_run(const std::map<std::string, Shape>& inputs,
                           const std::vector<std::string>& more_outputs) const;
  /// Writes the model, with the elements of other files, to `path`; with more than `most_bytes` the
  /// large tensors go to a file beside it, as onnx::write_model() has it, whose path is returned.
  /// UserError where tensors of graphs inside of nodes lie in other files.
  std::string write(const std::filesystem::path& path,
                    int64_t most_bytes = onnx::kMostBytesInside) const;

 private:
  struct EditableInput {
    onnx::ValueInfo info;
    Part part;
  };

  // Errors name the model.
  onnx::Known named(FunctionRef<onnx::Known()> read) const;
  void read(Bytes bytes, const std::shared_ptr<const void>& owner);
  void read_graph(Bytes graph, onnx::GraphProto& proto, const std::shared_ptr<const void>& owner);
  // The model, with a field of its graph for each tensor and input as these append it.
  using GiveTensor = std::function<void(std::string& graph, size_t tensor)>;
  using GiveInput = std::function<void(std::string& graph, const EditableInput& input)>;
  std::string wrapped(const GiveTensor& tensor, const GiveInput& input) const;
  void give_tensor(std::string& graph, size_t tensor) const;
  void index_tensors();
  static void give_input(std::string& graph, const EditableInput& input);

  std::string name_;
  std::filesystem::path path_;
  std::shared_ptr<onnx::ElementFiles> files_;
  int64_t opset_ = 0;
  bool has_inner_external_ = false;  ///< Tensors of nodes or functions lie in other files.
  std::vector<EditableNode> nodes_;
  std::vector<EditableTensor> tensors_;
  std::map<std::string, size_t> tensor_places_;
  std::vector<EditableInput> inputs_;
  std::vector<onnx::ValueInfo> outputs_;
  Part outer_[2];                ///< The fields of the model before its graph and behind it.
  std::vector<Part> other_;      ///< The fields of the graph beside nodes, tensors and inputs.
  std::set<std::string> names_;  ///< All that values and nodes have.
};

/// The declaration of a value of that type.
DataSpec sized_spec(const std::string& name, const TensorType& type);
/// A node that is made by its parts.
EditableNode made_node(const onnx::WrittenNode& node);
/// The node with other names of inputs and outputs, and all else that it has.
EditableNode renamed(const EditableNode& node,
                     std::vector<std::string> inputs,
                     std::vector<std::string> outputs);

}  // namespace ridge::compress
