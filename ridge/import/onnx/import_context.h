// The knowledge of an import that walks a model's nodes: values by name, the graph that it builds,
// the state that the graph reads, and all that it could not do.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/graph/graph.h"
#include "ridge/graph/program_graphs.h"
#include "ridge/import/onnx/known.h"
#include "ridge/import/onnx/model_elements.h"
#include "ridge/import/onnx/model_proto.h"
#include "ridge/import/onnx/onnx_model.h"

namespace ridge::onnx {

class NodeContext;
struct LateConvolution;
struct OpRow;

/// The model has nodes that are imported for no binding.
class UnsupportedModel : public UserError {
 public:
  using UserError::UserError;
};

struct Datum;
using DatumPtr = std::shared_ptr<Datum>;

/// The input of a DequantizeLinear: (integers - zero) * scale.
struct Dequantized {
  DatumPtr integers, scale;
  DatumPtr zero;     ///< May be null.
  int64_t axis = 0;  ///< Scales and zero points are of it, where there are several.
};

/// The input of a Relu or a Clip: the result is its elements, or `low` where they are less, and
/// then `high` where they are larger.
struct Limited {
  DatumPtr of;
  std::optional<double> low = {}, high = {};
};

/// A value of the model: known while it is imported, or a value of the graph, which may stand there
/// in two orders of its axes.
struct Datum {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::optional<Known> known;
  Value value;  ///< It has ONNX's order of axes, and is null until it is asked for.
  Value image;  ///< (N, H, W, C) where ONNX has (N, C, H, W); null where there is none.
  std::shared_ptr<const LateConvolution>
      convolution;                                 ///< It makes the image, where it is not null.
  std::shared_ptr<const Dequantized> dequantized;  ///< It was made of that, where it is not null.
  std::shared_ptr<const Limited> limited;          ///< It was made of that, where it is not null.
  std::map<std::string, Value> moved;              ///< Known elements, moved and scaled, by how.
  bool is_initializer = false;                     ///< `known` is a tensor of the model.
  bool is_global = false;                          ///< One of the model's graph: its name is alone.
  bool is_refused = false;  ///< The node that makes it was refused: nothing else is set.
};

DatumPtr make_datum(std::string name, Known known);
DatumPtr make_datum(std::string name, Value value);
/// The value is an image (N, H, W, C).
DatumPtr make_image_datum(std::string name, Value image);

/// A value that a refused node would have given.
DatumPtr make_refused_datum(std::string name);

/// The site of a node, by its name where it has one.
std::string site_of(const NodeProto& node);

/// Names that nodes of a graph, of a graph inside of it or of a function see.
struct Scope {
  const Scope* parent = nullptr;  ///< Null for the model's graph and in functions.
  const Opsets* opsets = nullptr;
  /// The attributes that a function's caller gives; none outside of functions.
  std::map<std::string, const Attribute*> attributes = {};
  std::map<std::string, DatumPtr> values = {};
  int depth = 0;  ///< How many scopes it lies in.

  /// Null when there is none of that name.
  DatumPtr find(const std::string& name) const;
};

class ImportContext {
 public:
  /// `graph` is what it builds. All references must outlive it.
  ImportContext(const ModelProto& model, ModelElements& elements, Graph& graph, ConvNorms norms);

  Graph& graph() { return graph_; }
  bool folds_norms() const { return norms_ == ConvNorms::kFolded; }

  /// The value in the graph, in ONNX's order of axes or as an image; what is known becomes a
  /// constant or a buffer of the state. UserError for what has no elements.
  Value value(Datum& datum);
  Value image(Datum& datum);

  /// A constant of the state of these elements, or one of the graph where they are few. A sum of
  /// its type and bytes is a part of its name: graphs of other bindings may share the state.
  Value stored(const Known& known, const std::string& name);
  /// The same of what is known of the datum, with axis perm[i] as axis i. Unless `scale` is empty,
  /// of its elements times the numbers of the last axis, each product rounded once.
  Value moved(Datum& datum,
              const std::vector<int64_t>& perm,
              const std::vector<double>& scale = {});

  Known read(const TensorProto& tensor);

  /// Imports the nodes of `graph`, whose inputs the scope has; returns its outputs.
  std::vector<DatumPtr> import_graph(const GraphProto& graph, Scope& scope);
  void import_node(const NodeProto& node, Scope& scope);

  /// Error that tells all nodes that could not be imported, where there are any: UnsupportedModel
  /// where some of them are for no binding.
  void check_refusals(std::string_view model) const;

  /// The constants that the graph reads.
  const std::vector<StateEntry>& state() const { return state_; }

 private:
  struct Refusal {
    std::string op, reason;
    std::vector<std::string> nodes = {};
    bool is_final = false;
  };

  void load_initializers(const GraphProto& graph, Scope& scope);
  void count_made(const Known& known);
  Value buffer(const TensorType& type, StateConstant constant, const std::string& name);
  /// `is_final`: for all bindings.
  void refuse(const NodeProto& node, const std::string& reason, bool is_final = false);
  void refuse_unknown_below(const NodeProto& node, const Scope& scope);
  const FunctionProto* find_function(const NodeProto& node) const;
  void call_function(const FunctionProto& function, const NodeProto& node, Scope& scope);
  std::vector<DatumPtr> inputs_of(const NodeProto& node, const Scope& scope) const;
  std::vector<DatumPtr> build(const OpRow& row,
                              const NodeProto& node,
                              std::vector<DatumPtr> inputs,
                              Scope& scope);
  std::optional<std::vector<DatumPtr>> fold(const OpRow& row,
                                            const NodeProto& node,
                                            const std::vector<DatumPtr>& inputs,
                                            Scope& scope);

  ModelElements& elements_;
  Graph& graph_;
  ConvNorms norms_;
  std::unique_ptr<Backend> folding_;  ///< It computes what is known.
  double folded_work_ = 0;            ///< Operations and bytes so far, of nodes that are not small.
  double small_folded_work_ = 0;      ///< The same of small ones.
  size_t read_bytes_ = 0;             ///< Bytes of the model's tensors.
  size_t made_bytes_ = 0;             ///< Bytes of constants that lie in no file.
  int64_t imported_nodes_ = 0;        ///< One with many inputs and outputs counts as several.
  std::map<std::pair<std::string_view, std::string_view>, const FunctionProto*> functions_;
  std::set<const TensorProto*> read_;
  std::vector<StateEntry> state_;
  std::map<std::string, size_t> numbers_;  ///< The places of entries in state_.
  std::vector<Refusal> refusals_;
};

}  // namespace ridge::onnx
