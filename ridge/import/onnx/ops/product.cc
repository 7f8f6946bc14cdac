// Matrix products.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"
#include "ridge/import/onnx/ops/quantize.h"

namespace ridge::onnx {
namespace {

// Products of floats; those of integers are exact in f64 below 2^53.
Value multiplied(Value a, Value b, bool transpose_a = false, bool transpose_b = false) {
  if (is_float(a.dtype())) return ridge::matmul(a, b, transpose_a, transpose_b);
  const Value wide =
      ridge::matmul(cast(a, DType::kF64), cast(b, DType::kF64), transpose_a, transpose_b);
  return cast(wide, a.dtype());
}

// NumPy's matmul: a vector is a row on the left and a column on the right.
void matmul_of(NodeContext& n) {
  check(n.rank(0) >= 1 && n.rank(1) >= 1, "a factor is a scalar");
  if (const Value y = product_of_bytes(n)) return n.give(y);
  Value a = n.value(0), b = n.value(1);
  const bool is_row = a.rank() == 1, is_column = b.rank() == 1;
  if (is_row) a = reshape(a, {1, a.dim(0)});
  if (is_column) b = reshape(b, {b.dim(0), 1});
  const Value y = multiplied(a, b);
  Shape shape = y.shape();
  if (is_column) shape.pop_back();
  if (is_row) shape.erase(shape.end() - (is_column ? 1 : 2));
  n.give(reshape(y, shape));
}

void fused_matmul(NodeContext& n) {
  check(n.rank(0) >= 2 && n.rank(1) >= 2, "a factor is a vector");
  check(n.integer("transBatchA", 0) == 0 && n.integer("transBatchB", 0) == 0,
        "it transposes batch dimensions");
  const Value y =
      multiplied(n.value(0), n.value(1), n.integer("transA", 0) != 0, n.integer("transB", 0) != 0);
  const double alpha = n.number("alpha", 1.0);
  n.give(alpha == 1.0 ? y : y * alpha);
}

void gemm(NodeContext& n) {
  check(n.rank(0) == 2 && n.rank(1) == 2,
        "its factors have {} and {} dimensions",
        n.rank(0),
        n.rank(1));
  const double alpha = n.number("alpha", 1.0), beta = n.number("beta", 1.0);
  const bool is_plain = n.integer("transA", 0) == 0 && alpha == 1.0 && beta == 1.0;
  const bool has_row = n.has(2) && n.dtype(2) == DType::kF32 && n.rank(2) == 1 &&
                       n.shape(2)[0] == n.shape(1)[n.integer("transB", 0) != 0 ? 0 : 1];
  if (is_plain && (has_row || !n.has(2))) {
    const Value bias = has_row ? n.value(2) : Value{};
    if (const Value y = product_of_bytes(n, n.integer("transB", 0) != 0, bias)) return n.give(y);
  }
  Value y =
      multiplied(n.value(0), n.value(1), n.integer("transA", 0) != 0, n.integer("transB", 0) != 0);
  if (alpha != 1.0) y = y * alpha;
  if (n.has(2) && beta != 0.0) {
    Value c = n.value(2);
    check(c.rank() <= 2, "its third input has {} dimensions", c.rank());
    if (beta != 1.0) c = c * beta;
    y = y + broadcast(c, y.shape());
  }
  n.give(y);
}

// ---- einsum ----

// An operand with a letter for each axis.
struct Lettered {
  Value value;
  std::string letters;

  int64_t size(char letter) const { return value.dim(static_cast<int64_t>(letters.find(letter))); }
  bool has(char letter) const { return letters.find(letter) != std::string::npos; }
};

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

// Upper letters stand for the axes of an ellipsis, the last one nearest to the end of the alphabet.
std::string with_ellipsis(std::string term, int64_t axes) {
  const size_t at = term.find("...");
  if (at == std::string::npos) return term;
  std::string letters;
  for (int64_t i = axes; i > 0; --i) letters += static_cast<char>('Z' + 1 - i);
  return term.replace(at, 3, letters);
}

Equation parse_equation(const std::string& text, const NodeContext& n) {
  std::string plain;
  std::copy_if(
      text.begin(), text.end(), std::back_inserter(plain), [](char c) { return c != ' '; });
  const size_t arrow = plain.find("->");
  std::string left = plain.substr(0, arrow);
  Equation equation;
  for (size_t at = 0; at <= left.size();) {
    const size_t comma = std::min(left.find(',', at), left.size());
    equation.inputs.push_back(left.substr(at, comma - at));
    at = comma + 1;
  }
  check(equation.inputs.size() == n.inputs(),
        "equation '{}' is of {} inputs",
        text,
        equation.inputs.size());
  int64_t most = 0;
  for (size_t i = 0; i < n.inputs(); ++i) {
    std::string& term = equation.inputs[i];
    const bool is_open = term.find("...") != std::string::npos;
    check(!is_open ||
              std::none_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; }),
          "equation '{}' has an ellipsis and capital letters",
          text);
    const int64_t axes = n.rank(i) - std::ssize(term) + (is_open ? 3 : 0);
    check(is_open ? axes >= 0 : axes == 0, "equation '{}' does not fit input {}", text, i);
    most = std::max(most, axes);
    term = with_ellipsis(term, axes);
    for (const char c : term)
      check(std::isalpha(static_cast<unsigned char>(c)) != 0, "equation '{}' has '{}'", text, c);
  }
  if (arrow != std::string::npos) {
    equation.output = with_ellipsis(plain.substr(arrow + 2), most);
    return equation;
  }
  // Without an arrow: the axes of the ellipsis, then each letter that stands once, in their order.
  std::map<char, int> counts;
  for (const std::string& term : equation.inputs)
    for (const char c : term) ++counts[c];
  for (const auto& [letter, count] : counts)
    if (count == 1 || letter > 'Z' - most) {
      const bool is_upper = letter <= 'Z';
      if (is_upper || count == 1) equation.output += letter;
    }
  return equation;
}

// A letter that stands twice means the diagonal.
Lettered with_diagonals(NodeContext& n, Lettered x) {
  for (size_t i = 0; i < x.letters.size(); ++i) {
    const size_t again = x.letters.find(x.letters[i], i + 1);
    if (again == std::string::npos) continue;
    const auto size = x.size(x.letters[i]);
    check(x.value.dim(static_cast<int64_t>(again)) == size, "a diagonal of another size");
    // The two axes become one of size * size, of which every (size + 1)-th is taken.
    std::vector<int64_t> perm;
    std::string letters;
    for (size_t axis = 0; axis < x.letters.size(); ++axis)
      if (axis != i && axis != again) {
        perm.push_back(static_cast<int64_t>(axis));
        letters += x.letters[axis];
      }
    perm.push_back(static_cast<int64_t>(i));
    perm.push_back(static_cast<int64_t>(again));
    const Value moved = transpose(x.value, perm);
    Shape flat(moved.shape().begin(), moved.shape().end() - 2);
    flat.push_back(size * size);
    std::vector<int64_t> places;
    for (int64_t k = 0; k < size; ++k) places.push_back(k * (size + 1));
    const auto last = static_cast<int64_t>(flat.size()) - 1;
    return with_diagonals(n, {take(n, reshape(moved, flat), places, last), letters + x.letters[i]});
  }
  return x;
}

// Axes in the order of `letters`, with size 1 for those that are not there.
Value ordered(const Lettered& x, const std::string& letters) {
  std::vector<int64_t> perm;
  Shape shape;
  for (const char letter : letters) {
    if (x.has(letter)) perm.push_back(static_cast<int64_t>(x.letters.find(letter)));
    shape.push_back(x.has(letter) ? x.size(letter) : 1);
  }
  return reshape(transpose(x.value, perm), shape);
}

// Sums over the letters that nobody else needs.
Lettered summed(Lettered x, const std::set<char>& needed) {
  std::vector<int64_t> axes;
  std::string left;
  for (size_t i = 0; i < x.letters.size(); ++i) {
    if (needed.contains(x.letters[i]))
      left += x.letters[i];
    else
      axes.push_back(static_cast<int64_t>(i));
  }
  if (!axes.empty()) x.value = reduce_sum(x.value, axes);
  return {x.value, left};
}

int64_t product_of(const Lettered& x, const std::string& letters) {
  int64_t product = 1;
  for (const char letter : letters) product *= x.size(letter);
  return product;
}

// The product of two, summed over the letters of both that are not needed.
Lettered contracted(const Lettered& a, const Lettered& b, const std::set<char>& needed) {
  std::string batch, rows, columns, inner;
  for (const char letter : a.letters) {
    if (!b.has(letter) || (a.size(letter) == 1) != (b.size(letter) == 1))
      rows += letter;
    else
      (needed.contains(letter) ? batch : inner) += letter;
  }
  for (const char letter : b.letters)
    if (batch.find(letter) == std::string::npos && inner.find(letter) == std::string::npos)
      columns += letter;
  // Axes that one of the two broadcasts: by plain products.
  const bool is_broadcast = std::any_of(
      rows.begin(), rows.end(), [&](char c) { return columns.find(c) != std::string::npos; });
  if (is_broadcast) {
    std::string letters = a.letters;
    for (const char letter : b.letters)
      if (!a.has(letter)) letters += letter;
    return summed({ordered(a, letters) * ordered(b, letters), letters}, needed);
  }
  const auto form = [](const Lettered& x, const std::string& order, Shape shape) {
    return reshape(ordered(x, order), std::move(shape));
  };
  const Value left = form(
      a, batch + rows + inner, {product_of(a, batch), product_of(a, rows), product_of(a, inner)});
  const Value right = form(b,
                           batch + inner + columns,
                           {product_of(b, batch), product_of(b, inner), product_of(b, columns)});
  Shape shape;
  for (const char letter : batch + rows) shape.push_back(a.size(letter));
  for (const char letter : columns) shape.push_back(b.size(letter));
  return {reshape(multiplied(left, right), shape), batch + rows + columns};
}

void einsum(NodeContext& n) {
  const Equation equation = parse_equation(n.text("equation", ""), n);
  const auto needed_after = [&](size_t input) {
    std::set<char> letters(equation.output.begin(), equation.output.end());
    for (size_t i = input; i < equation.inputs.size(); ++i)
      letters.insert(equation.inputs[i].begin(), equation.inputs[i].end());
    return letters;
  };
  Lettered result = with_diagonals(n, {n.value(0), equation.inputs[0]});
  result = summed(result, needed_after(1));
  for (size_t i = 1; i < n.inputs(); ++i) {
    Lettered next = with_diagonals(n, {n.value(i), equation.inputs[i]});
    std::set<char> needed = needed_after(i + 1);
    std::set<char> of_result = needed;
    of_result.insert(result.letters.begin(), result.letters.end());
    next = summed(next, of_result);
    result = contracted(result, next, needed);
  }
  for (const char letter : equation.output)
    check(result.has(letter), "the equation's result has '{}', which no input has", letter);
  check(result.letters.size() == equation.output.size(),
        "the equation's result names an axis twice");
  n.give(ordered(result, equation.output));
}

constexpr OpRow kProductOps[] = {
    {"Einsum", einsum},
    {"FusedMatMul", fused_matmul, 1, 1, kMicrosoft},
    {"Gemm", gemm},
    {"MatMul", matmul_of},
};

}  // namespace

std::span<const OpRow> product_ops() { return kProductOps; }

}  // namespace ridge::onnx
