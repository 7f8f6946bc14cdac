// Matrix products, attention, and lookups.
#include <limits>
#include <numeric>

#include "ridge/export/onnx/export_table.h"
#include "ridge/export/onnx/ops/patterns.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"

namespace ridge::onnx {
namespace {

// Products whose inputs nobody rounds, and whose result has their dtype.
bool is_plain_product(const Node& node, int64_t) {
  const auto& op = node.op_as<MatMul>();
  return op.round_to == DType::kF32 && !op.f32_result;
}

std::string factor(NodeExport& n, Value value, bool is_transposed) {
  const std::string name = n.to().name(value);
  if (!is_transposed) return name;
  std::vector<int64_t> perm(value.shape().size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return n.to().transpose(n.site(), name, perm);
}

void matmul(NodeExport& n) {
  const auto& op = n.op<MatMul>();
  n.give(n.add("MatMul", {factor(n, n.in(0), op.transpose_a), factor(n, n.in(1), op.transpose_b)}));
}

// ---- attention ----

std::string text_of(const Size& size) {
  std::string text = fmt::format("{}", size.factor);
  for (const std::string& name : size.names) text += " " + name;
  return text;
}

// 0, 1, ... up to the size.
std::string numbered(NodeExport& n, const Size& size) {
  return n.to().once("numbers of " + text_of(size), [&] {
    return n.add("Range",
                 {n.to().scalar(DType::kI64, 0),
                  n.to().count(n.site(), size),
                  n.to().scalar(DType::kI64, 1)});
  });
}

// True where query t may see key s, for s <= t: (T, S).
std::string causal_mask(NodeExport& n, const Size& queries, const Size& keys) {
  const std::string key = fmt::format("mask of {} by {}", text_of(queries), text_of(keys));
  return n.to().once(key, [&] {
    const std::string rows =
        n.to().reshape(n.site(), numbered(n, queries), {queries}, {queries, Size{1}});
    return n.add("GreaterOrEqual", {rows, numbered(n, keys)});
  });
}

/// The names of queries and values (B, H, T, D), and of keys (B, H, D, S).
struct Heads {
  std::string q, k, v;
};

Heads separate_heads(NodeExport& n) {
  return {n.name(0), n.to().transpose(n.site(), n.name(1), {0, 1, 3, 2}), n.name(2)};
}

// The sizes of a row of all heads, (B, T, H D), and of each, (B, T, H, D).
struct HeadSizes {
  std::vector<Size> joined = {}, apart = {};
};

HeadSizes head_sizes(NodeExport& n) {
  const int64_t heads = n.op<Attention>().heads;
  HeadSizes sizes{.joined = n.to().sized().sizes(n.out())};
  sizes.apart = sizes.joined;
  sizes.apart[2] = {heads};
  sizes.apart.push_back({sizes.joined[2].factor / heads});
  return sizes;
}

Heads packed_heads(NodeExport& n) {
  const HeadSizes sizes = head_sizes(n);
  const int64_t width = sizes.joined[2].factor;
  const std::vector<std::string> parts =
      n.to().add_many(n.site(),
                      "Split",
                      {n.name(0), n.to().integers({width, width, width})},
                      AttributeList().integer("axis", 2),
                      3);
  const auto part = [&](size_t i, const std::vector<int64_t>& perm) {
    const std::string apart = n.to().reshape(n.site(), parts[i], sizes.joined, sizes.apart);
    return n.to().transpose(n.site(), apart, perm);
  };
  return {part(0, {0, 2, 1, 3}), part(1, {0, 2, 3, 1}), part(2, {0, 2, 1, 3})};
}

// A mask may leave a query no key, for which softmax is not defined as the op is. Operands by token
// are moved by the plain form.
bool is_plain_attention(const Node& node, int64_t) {
  const auto& op = node.op_as<Attention>();
  return node.inputs.size() == op.operands() && !op.by_token;
}

void attention(NodeExport& n) {
  const auto& op = n.op<Attention>();
  const DType dtype = n.out().dtype();
  const Heads heads = op.is_packed() ? packed_heads(n) : separate_heads(n);
  std::string scores = n.add("MatMul", {heads.q, heads.k});
  if (op.scale != 1.0) scores = n.add("Mul", {scores, n.to().scalar(dtype, op.scale)});
  if (op.causal) {
    const size_t rows = op.is_packed() ? 1 : 2;
    const SizedGraph& sized = n.to().sized();
    const Size queries = sized.size(n.in(0), rows);
    const Size keys = op.is_packed() ? queries : sized.size(n.in(1), rows);
    constexpr double kForbidden = -std::numeric_limits<double>::infinity();
    scores =
        n.add("Where", {causal_mask(n, queries, keys), scores, n.to().scalar(dtype, kForbidden)});
  }
  const std::string weights = n.add("Softmax", {scores}, AttributeList().integer("axis", -1));
  std::string y = n.add("MatMul", {weights, heads.v});
  if (op.is_packed()) {
    const HeadSizes sizes = head_sizes(n);
    y = n.to().transpose(n.site(), y, {0, 2, 1, 3});
    y = n.to().reshape(n.site(), y, sizes.apart, sizes.joined);
  }
  n.give(y);
}

// ---- lookups ----

void gather(NodeExport& n) {
  n.give(n.add(
      "Gather", {n.name(0), n.name(1)}, AttributeList().integer("axis", n.op<Gather>().axis)));
}

constexpr ExportRow kProductRows[] = {
    {"attention", attention, is_plain_attention},
    {"gather", gather},
    {"matmul", matmul, is_plain_product},
};

}  // namespace

bool give_folded_product(NodeExport& n) {
  const Node& product = *n.in(0).node;
  if (!product.is<MatMul>() || !is_plain_product(product, 0)) return false;
  const auto& op = product.op_as<MatMul>();
  const Value rows = product.inputs[0], matrix = product.inputs[1];
  if (op.transpose_a || !rows.node->is<Reshape>() || rows.rank() != 2 || matrix.rank() != 2)
    return false;
  const Value x = rows.node->inputs[0];
  if (x.rank() <= 2) return false;
  const SizedGraph& sized = n.to().sized();
  std::vector<Size> wanted = sized.sizes(x);
  if (wanted.back() != sized.size(rows, 1)) return false;
  wanted.back() = sized.size(n.in(0), 1);
  if (sized.sizes(n.out()) != wanted) return false;
  n.give(n.add("MatMul", {n.to().name(x), factor(n, matrix, op.transpose_b)}));
  return true;
}

std::span<const ExportRow> product_exports() { return kProductRows; }

}  // namespace ridge::onnx
