// A model as its file says it: ONNX's messages, decoded from protobuf's wire format. Elements of
// tensors stay where they lie.
//
// Names and field numbers are those of onnx.proto3. What the importer does not read is skipped.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/io/file.h"

namespace ridge::onnx {

/// A size of a declared shape: a number, or a name that a binding gives a size, or neither.
struct DimProto {
  int64_t value = 0;  ///< 0: not given.
  std::string name;
};

/// The declared type of an input or output.
struct ValueInfo {
  std::string name;
  int64_t element_type = 0;  ///< TensorProto.DataType; 0 where it is no tensor.
  bool has_shape = false;
  std::vector<DimProto> dims;
};

/// A tensor but for its elements: `message` has them, or says where they lie.
struct TensorProto {
  std::string name = {};
  std::vector<int64_t> dims = {};
  int64_t data_type = 0;
  bool is_external = false;
  Bytes message;
};

struct GraphProto;

struct Attribute {
  enum class Type : uint8_t {
    kUndefined = 0,
    kFloat = 1,
    kInt = 2,
    kString = 3,
    kTensor = 4,
    kGraph = 5,
    kFloats = 6,
    kInts = 7,
    kStrings = 8,
  };
  std::string name;
  int64_t type = 0;       ///< A Type, or one that the importer does not read.
  std::string reference;  ///< Inside a function: the attribute of the caller that it stands for.
  float number = 0;
  int64_t integer = 0;
  std::string text;
  std::vector<float> numbers;
  std::vector<int64_t> integers;
  std::vector<std::string> texts;
  std::shared_ptr<const TensorProto> tensor;
  std::shared_ptr<const GraphProto> graph;
};

struct NodeProto {
  std::string name = {}, op = {}, domain = {};
  std::vector<std::string> inputs = {},
                           outputs = {};  ///< Empty: an optional one that is not there.
  std::vector<Attribute> attributes = {};
};

struct GraphProto {
  std::string name;
  std::vector<NodeProto> nodes;
  std::vector<TensorProto> initializers;
  std::vector<ValueInfo> inputs, outputs;
  bool has_sparse = false;  ///< It has initializers in a sparse form.
};

/// Versions of operators by domain; the domain "" is ONNX's own.
using Opsets = std::map<std::string, int64_t, std::less<>>;

/// A node of this domain and name stands for these nodes.
struct FunctionProto {
  std::string name, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> defaults;
  std::vector<NodeProto> nodes;
  Opsets opsets;
};

struct ModelProto {
  int64_t ir_version = 0;
  Opsets opsets;
  GraphProto graph;
  std::vector<FunctionProto> functions;
};

/// Whether messages may show a text of a file: UTF-8 without control characters.
bool is_printable(std::string_view text);

/// The model in `bytes`, which must outlive it. UserError, opened by `source`, for what is no
/// model, for graphs that lie too deep in one another, for more parts than any model has, and for
/// names that are not printable.
ModelProto parse_model(Bytes bytes, std::string_view source);

/// The tensors of the model whose elements lie in other files.
std::vector<const TensorProto*> external_tensors(const ModelProto& model);

/// The tensor of such a message alone, as ONNX's test data have them.
TensorProto parse_tensor(Bytes bytes, std::string_view source);

}  // namespace ridge::onnx
