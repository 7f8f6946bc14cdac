// A graph of ATen operators as python/ridge/torch describes it: a text that is read as hostile.
//
// Values are numbered: the inputs, then the results of each node in order. The text is JSON:
//
//   {"format": "ridge.aten/1",
//    "inputs": [TYPE, ...],
//    "nodes": [[OP, NAME, [ARGUMENT, ...], [TYPE or null, ...]], ...],
//    "outputs": [[VALUE, [STRIDE, ...] or null, INPUT?], ...]}
//
// An output without strides lies as it is made. One with the number of an input behind them is
// written over that input, which has its type and its strides.
// A TYPE is [DTYPE, [SIZE, ...], [STRIDE, ...]], with "constant" behind it for an input that keeps
// its elements from run to run. Arguments stand in the order of the operator's schema, all of them:
// null, a bool, a number, a text, a list of arguments, {"v": VALUE}, {"d": DTYPE} or {"f": "inf"}.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ridge/base/type.h"

namespace ridge {
class JsonValue;
}

namespace ridge::aten {

struct None {};

/// The number of a value.
struct ValueNumber {
  size_t number = 0;
};

struct Argument {
  using List = std::vector<Argument>;
  std::variant<None, bool, int64_t, double, std::string, DType, ValueNumber, List> data;

  template <typename T>
  const T* get() const {
    return std::get_if<T>(&data);
  }
};

/// The type of a tensor, and how it lies in memory: the axes from the outermost to the innermost.
struct PlacedType {
  TensorType type;
  std::vector<int64_t> order;

  /// The sizes of the axes in that order: the shape of the memory, row-major.
  Shape lying() const;
};

struct AtenInput {
  PlacedType type;
  bool is_constant = false;
};

struct AtenNode {
  std::string op, name;
  std::vector<Argument> arguments = {};
  /// One a result; `read` is false where nobody reads it: then it has no type.
  struct Result {
    bool read = false;
    TensorType type = {};
  };
  std::vector<Result> results = {};
  size_t first_result = 0;  ///< The number of the value of its result 0.
};

struct AtenOutput {
  size_t value = 0;
  PlacedType type;
  bool is_free = false;                       ///< Its order of axes is the importer's choice.
  std::optional<size_t> over = std::nullopt;  ///< The input that it is written over.
};

struct AtenGraph {
  std::vector<AtenInput> inputs;
  std::vector<AtenNode> nodes;
  std::vector<AtenOutput> outputs;
  /// All values lie here at their numbers.
  std::vector<AtenNode::Result> values;
};

/// The axes from the outermost to the innermost of a tensor that is dense in some order of them; an
/// axis of one element stays as far out as it can. UserError, opened by `where`, for other strides.
std::vector<int64_t> dense_order(const Shape& shape,
                                 const std::vector<int64_t>& strides,
                                 std::string_view where);

/// UserError for a text that is no such graph, with the place in it.
AtenGraph parse_aten_graph(std::string_view text);
AtenGraph read_aten_graph(const JsonValue& value);

}  // namespace ridge::aten
