// One primitive = one class derived from Op: shape rule, gradient, cost, traits, printed fields
// and batch rule in one place. The classes lie in ops/ by family; ops/registry.h lists them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ridge/base/type.h"
#include "ridge/graph/batch_flow.h"

namespace ridge {

class Graph;
struct Node;
struct Value;

/// A set of dtypes, as bits.
struct DTypeSet {
  uint16_t bits = 0;

  constexpr bool has(DType dtype) const { return bits >> static_cast<int>(dtype) & 1; }
  constexpr DTypeSet operator|(DTypeSet other) const {
    return {static_cast<uint16_t>(bits | other.bits)};
  }
};

constexpr DTypeSet dtype_set(auto... dtypes) {
  return {static_cast<uint16_t>((0 | ... | (1 << static_cast<int>(dtypes))))};
}

inline constexpr DTypeSet kFloats = dtype_set(DType::kF64, DType::kF32, DType::kF16, DType::kBF16);
inline constexpr DTypeSet kIndices = dtype_set(DType::kI64, DType::kI32);
inline constexpr DTypeSet kBools = dtype_set(DType::kBool);
inline constexpr DTypeSet kNumbers = {0x3ff};
inline constexpr DTypeSet kAnyDType = kNumbers | kBools;

/// How an op's gradient comes about. Every op states one; the registry walk fails on kUndeclared.
enum class Gradient : uint8_t {
  kUndeclared,
  kRule,    ///< vjp() is written out.
  kExpand,  ///< The gradient of expand(), the graph of plain ops.
  kZero,    ///< Piecewise constant, or the results are not floats: no gradient flows.
  kNone,    ///< Not supported; asking for it is a UserError.
};

/// The kind of arithmetic: with the dtype it keys the tolerance table of the tests.
enum class OpClass : uint8_t {
  kMove,            ///< Copies bits or compares: exact.
  kArithmetic,      ///< One correctly rounded operation an element.
  kTranscendental,  ///< A few roundings an element.
  kReduction,       ///< Sums along axes.
  kContraction,     ///< Products summed.
};

/// In which inputs an op is linear: jointly (a sum of inputs, like add), or in each alone with the
/// others fixed (a product, like matmul). Bit i stands for input i.
struct Linearity {
  uint32_t joint = 0;
  uint32_t each = 0;
};

struct OpTraits {
  std::string_view name;
  int min_inputs = 0;
  int max_inputs = 0;
  /// dtypes of the first input that the op accepts (of the result, for an op without inputs).
  DTypeSet dtypes = {};
  OpClass op_class = OpClass::kMove;
  Gradient gradient = Gradient::kUndeclared;
  /// Element i of each result depends on element i of each input alone.
  bool elementwise = false;
  Linearity linear = {};
};

/// Work of one node: floating-point (or integer) operations, and bytes that must move when every
/// input is read once and every output written once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// Visits the printed fields of an op: name and reference. Printer, parser, equality and hash are
/// visitors, so an op lists its fields once.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void visit(std::string_view name, bool& value) = 0;
  virtual void visit(std::string_view name, int64_t& value) = 0;
  virtual void visit(std::string_view name, double& value) = 0;
  virtual void visit(std::string_view name, DType& value) = 0;
  virtual void visit(std::string_view name, std::string& value) = 0;
  virtual void visit(std::string_view name, std::vector<int64_t>& value) = 0;
  virtual void visit(std::string_view name, std::vector<double>& value) = 0;
};

/// The arguments of a gradient rule: the node, and the gradients of its outputs (null where none
/// flows).
struct VjpContext {
  const Node& node;
  std::span<const Value> output_gradients;

  Value in(size_t i) const;
  Value out(size_t i = 0) const;
  Value dout(size_t i = 0) const;
};

class Op {
 public:
  virtual ~Op() = default;

  virtual const OpTraits& traits() const = 0;
  std::string_view name() const { return traits().name; }

  /// Types of the results. Arity, and the first input's dtype against the traits, have been
  /// checked. Throws UserError "[op] what; got ..., expected ...".
  virtual std::vector<TensorType> infer(std::span<const TensorType> inputs) const = 0;

  /// Gradient of each input (null Value: none flows), built in the node's graph.
  virtual std::vector<Value> vjp(const VjpContext& context) const;

  /// The same results by plain ops, built in the graph of the inputs. Fused ops only; the default
  /// returns nothing.
  virtual std::vector<Value> expand(std::span<const Value> inputs) const;
  /// Whether expand() returns anything.
  virtual bool has_plain_form() const = 0;

  /// The default counts one operation an output element, and all inputs and outputs as traffic.
  virtual Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const;

  /// Returns the place of the batch in each output, given its place in each input. Called only when
  /// no input is a sum over samples or mixed: that case is decided by the traits' linearity. The
  /// default serves elementwise ops and says "mixed" for all others.
  virtual std::vector<BatchFlow> batch_flow(const BatchFlowContext& context) const;

  /// True when result `result` may be made in the bytes of input `input` (of as many elements of
  /// the same size): every kernel reads all that it needs of an element before it writes there.
  virtual bool may_overwrite(size_t, size_t) const { return traits().elementwise; }

  /// The traits' linearity, unless a field takes it away.
  virtual Linearity linearity() const { return traits().linear; }

  /// Visits every field; two ops of one name with equal fields are the same op.
  virtual void fields(FieldVisitor&) {}

 protected:
  /// The gradient of expand().
  std::vector<Value> expanded_vjp(const VjpContext& context) const;
};

/// Base of the op classes: takes the traits from the class's kTraits.
template <typename Self>
class OpOf : public Op {
 public:
  const OpTraits& traits() const final { return Self::kTraits; }
  bool has_plain_form() const final {
    return !std::is_same_v<decltype(&Self::expand), decltype(&Op::expand)>;
  }
};

/// Bytes of all types together.
double total_bytes(std::span<const TensorType> types);

/// True when both have the same name and equal fields.
bool equal(const Op& a, const Op& b);

/// The fields that differ from the op's defaults, as text: "axes=[1], keepdims=true".
std::string fields_text(const Op& op);

}  // namespace ridge
