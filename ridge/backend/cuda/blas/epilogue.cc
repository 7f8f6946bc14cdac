#include "ridge/backend/cuda/blas/epilogue.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

// GELU's operand is read and written by 16 bytes at a time.
constexpr int64_t kAuxColumns = 8;

// ---- GELU's derivative ----

// Whether a body computes dy times GELU's derivative of x: node by node what Ridge's own gradient
// of GELU does, for some operands dy and x.
class SlopeMatch {
 public:
  SlopeMatch() {
    const TensorType type{DType::kF32, {2}};
    const Value x = input(pattern_, "x", type), dy = input(pattern_, "dy", type);
    const Value y = gelu(x, GeluForm::kTanh);
    x_ = x.node, dy_ = dy.node;
    const Value outputs[] = {y}, seeds[] = {dy}, wrt[] = {x};
    slope_ = vector_jacobian_product(outputs, seeds, wrt)[0].node;
  }

  struct Operands {
    const Node *dy = nullptr, *x = nullptr;
  };
  std::optional<Operands> find(const Node& node) {
    found_ = {};
    known_.clear();
    if (!is(*slope_, node)) return std::nullopt;
    return found_;
  }

 private:
  bool is(const Node& want, const Node& reshaped) {
    const Node& node = behind_reshapes(reshaped);
    const auto [known, is_new] = known_.try_emplace({&want, &node}, false);
    if (!is_new) return known->second;
    const bool same = compare(want, node);
    return known_[{&want, &node}] = same;
  }

  bool compare(const Node& want, const Node& node) {
    if (&want == x_ || &want == dy_) {
      const Node*& operand = &want == x_ ? found_.x : found_.dy;
      if (operand == nullptr) operand = &node;
      return operand == &node;
    }
    if (want.op->name() != node.op->name() || want.inputs.size() != node.inputs.size())
      return false;
    if (want.is<Constant>()) return is_same_number(want.op_as<Constant>(), node.op_as<Constant>());
    for (size_t i = 0; i < want.inputs.size(); ++i)
      if (!is(*want.inputs[i].node, *node.inputs[i].node)) return false;
    return true;
  }

  static bool is_same_number(const Constant& a, const Constant& b) {
    return a.is_splat() && b.is_splat() && a.values.size() == 1 && b.values.size() == 1 &&
           static_cast<float>(a.values[0]) == static_cast<float>(b.values[0]);
  }

  Graph pattern_{"slope"};
  const Node *x_ = nullptr, *dy_ = nullptr, *slope_ = nullptr;
  Operands found_;
  std::map<std::pair<const Node*, const Node*>, bool> known_;
};

// ---- bodies ----

class EpilogueFinder {
 public:
  explicit EpilogueFinder(const Node& node)
      : op_(node.op_as<FusedMatMul>()),
        product_(product_type(op_, node.input_types())),
        body_(read_body(op_.loop).graph) {}

  std::optional<BlasEpilogue> find() {
    const auto& outputs = body_.outputs();
    if (size_of(product_.dtype) != 2 || product_.rank() != 2 || op_.loop.rows != 0 ||
        outputs.size() > 2)
      return std::nullopt;
    if (outputs.size() == 1)
      return is_narrow(0) && read(*outputs[0].value.node, 0) ? std::optional(found_) : std::nullopt;
    if (!is_narrow(0) || !is_narrow(1)) return std::nullopt;
    // One of them is what GELU reads, whichever comes first.
    for (const int result : {0, 1}) {
      found_ = {};
      if (!read(*outputs[static_cast<size_t>(result)].value.node, result) || !found_.gelu) continue;
      const Node& other = *outputs[static_cast<size_t>(1 - result)].value.node;
      if (before_rounding(other) != before_gelu_ || product_.shape.back() % kAuxColumns != 0)
        continue;
      found_.aux_result = 1 - result;
      return found_;
    }
    return std::nullopt;
  }

 private:
  // Whether an output is like the product: 16 bits of its dtype for each of its elements.
  bool is_narrow(size_t output) const {
    const TensorType& type = body_.outputs()[output].value.type();
    return type.dtype == product_.dtype && type.elements() == product_.elements();
  }

  bool read(const Node& result, int index) {
    const Node* const made = before_rounding(result);
    if (made == nullptr) return false;
    found_.result = index;
    if (made->is<Gelu>()) {
      if (!made->op_as<Gelu>().tanh) return false;
      found_.gelu = true;
      before_gelu_ = &behind_reshapes(*made->inputs[0].node);
      return is_product(*before_gelu_) || is_sum(*before_gelu_);
    }
    return is_sum(*made) || is_slope(*made);
  }

  // The product, in f32.
  static bool is_product(const Node& node) { return operand(node) == 0; }

  // The number of the input that is widened to f32; -1: it is none.
  static int operand(const Node& node) {
    const Node& cast = behind_reshapes(node);
    if (!cast.is<Cast>() || cast.outputs[0].dtype != DType::kF32) return -1;
    return operand_number(behind_reshapes(*cast.inputs[0].node));
  }
  static int operand_number(const Node& node) {
    return node.is<Input>() ? static_cast<int>(input_number(node)) : -1;
  }

  // The product with a row added to each of its rows.
  bool is_sum(const Node& node) {
    if (!node.is<Add>()) return false;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const Node &one = *node.inputs[i].node, &other = behind_reshapes(*node.inputs[1 - i].node);
      if (!is_product(one) || !other.is<Broadcast>()) continue;
      const int64_t columns = product_.shape.back();
      const Value row = other.inputs[0];
      const int number = operand_number(*row.node);
      if (number < 1 || row.dtype() != DType::kF32 || row.type().elements() != columns ||
          row.rank() == 0 || row.dim(-1) != columns || other.outputs[0].shape.back() != columns)
        return false;
      found_.bias = number + 1;
      return true;
    }
    return false;
  }

  bool is_slope(const Node& node) {
    const auto operands = SlopeMatch().find(node);
    if (!operands || !is_product(*operands->dy)) return false;
    const int x = operand(*operands->x);
    if (x < 1) return false;
    const TensorType& type = body_.find_input(fmt::format("{}", x))->outputs[0];
    if (type.dtype != product_.dtype || type.elements() != product_.elements() ||
        product_.shape.back() % kAuxColumns != 0)
      return false;
    found_.slope = true;
    found_.aux = x + 1;
    return true;
  }

  const FusedMatMul& op_;
  TensorType product_;
  const Graph& body_;
  BlasEpilogue found_;
  const Node* before_gelu_ = nullptr;
};

}  // namespace

BlasEpilogueKind BlasEpilogue::kind() const {
  if (slope) return BlasEpilogueKind::kGeluSlope;
  if (!gelu) return BlasEpilogueKind::kBias;
  if (bias < 0) return aux_result < 0 ? BlasEpilogueKind::kGelu : BlasEpilogueKind::kGeluAux;
  return aux_result < 0 ? BlasEpilogueKind::kGeluBias : BlasEpilogueKind::kGeluAuxBias;
}

std::string BlasEpilogue::name() const {
  if (slope) return "dgelu";
  return fmt::format("{}{}{}",
                     gelu ? "gelu" : "bias",
                     aux_result < 0 ? "" : "_aux",
                     gelu && bias >= 0 ? "_bias" : "");
}

std::optional<BlasEpilogue> blas_epilogue(const Node& node) { return EpilogueFinder(node).find(); }

}  // namespace ridge::cuda
