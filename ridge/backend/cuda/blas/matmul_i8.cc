#include "ridge/backend/cuda/blas/matmul_i8.h"

#include <array>
#include <span>

#include "ridge/backend/cuda/driver/node_kernel.h"
#include "ridge/base/alignment.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

// The library reads sides that are multiples of kMultiple; padded ones are multiples of what its
// kernels read at once.
constexpr int64_t kMultiple = 4, kPaddedMultiple = 16;
constexpr int64_t kFewRows = 32;
// Up to here sums of bytes as i8 are exact in f32, and products of them within i32.
constexpr int64_t kDeepest = (1 << 17) - 1;

int64_t padded(int64_t size) {
  return size % kMultiple == 0 ? size
                               : (size + kPaddedMultiple - 1) / kPaddedMultiple * kPaddedMultiple;
}

// The sizes of a node. Where all items share b, their rows are those of one product.
struct Sizes {
  explicit Sizes(const Node& node) : op(node.op_as<MatMulI8>()) {
    const TensorType &a_type = node.inputs[MatMulI8::kA].type(),
                     &b_type = node.inputs[MatMulI8::kB].type();
    const Shape& y = node.outputs[0].shape;
    m = y[y.size() - 2], n = y.back();
    k = a_type.shape[a_type.shape.size() - (op.transpose_a ? 2 : 1)];
    items = node.outputs[0].elements() / (m * n);
    products = b_type.rank() == 2 ? 1 : items;
    a = {a_type.dtype, {items, op.transpose_a ? k : m, op.transpose_a ? m : k}};
    b = {b_type.dtype, {products, op.transpose_b ? n : k, op.transpose_b ? k : n}};
  }

  int64_t rows() const { return items / products * m; }
  // One product, or one for each item.
  BlasProblem problem(int64_t padded_rows) const {
    return {.m = padded_rows,
            .n = padded(n),
            .k = padded(k),
            .batches = products,
            .transpose_b = true,
            .factors = DType::kI8,
            .result = DType::kI32};
  }

  const MatMulI8& op;
  int64_t m = 0, n = 0, k = 0;
  int64_t items = 1, products = 1;
  TensorType a, b;  // as they lie, (items, ..., ...) and (products, ..., ...)
};

// ---- the operands ----

struct SignedBytes {
  Value sums;   // of each row, (..., rows, 1) in f32
  Value bytes;  // (..., rows, depth) as i8
};

// Those of x (..., rows, K); i8 is copied only where the caller says so.
SignedBytes signed_bytes(Value x, bool copies) {
  const bool is_shifted = x.dtype() == DType::kU8;
  Graph body("bytes");
  Value number = cast(input(body, "0", x.type()), DType::kF32);
  if (is_shifted) number = number - 128.0;
  body.add_output("0", reduce_sum(number, {-1}, /*keepdims=*/true));
  if (is_shifted || copies) body.add_output("1", cast(number, DType::kI8));
  const int64_t elements = x.type().elements(), depth = x.dim(-1);
  const LoopDomain domain{elements, elements == depth ? 0 : depth};
  Node& loop = fused(x.graph(), body, {x}, Site{"bytes"}, domain);
  return {{&loop, 0}, loop.outputs.size() > 1 ? Value{&loop, 1} : x};
}

// Pads the bytes (..., rows, depth) with zeros to that many rows and that depth.
Value padded_to(Value bytes, int64_t rows, int64_t depth) {
  std::vector<int64_t> low(bytes.shape().size(), 0), high = low;
  high[high.size() - 2] = rows - bytes.dim(-2);
  high.back() = depth - bytes.dim(-1);
  return pad(bytes, low, high);
}

// Output "0": the sums of the rows of an operand, or of its columns where it `is_transposed`; "1":
// these rows as the library reads them, unless it reads the operand as it lies.
Graph operand_form(
    const TensorType& lying, bool is_transposed, bool copies, int64_t rows, int64_t depth) {
  Graph form("operand");
  Value x = input(form, "0", lying);
  if (is_transposed) x = transpose_last(x);
  const bool moves = is_transposed || x.dim(-2) != rows || x.dim(-1) != depth;
  const SignedBytes made = signed_bytes(x, copies && !moves);
  const Value bytes = padded_to(made.bytes, rows, depth);
  form.add_output("0", made.sums);
  if (!bytes.node->is<Input>()) form.add_output("1", bytes);
  return form;
}

// Products of rows that nobody reads may be of any numbers: only the others are copied.
Graph form_of_a(const Sizes& sizes, const BlasProblem& problem) {
  const bool has_more_rows = problem.m != sizes.rows();
  return operand_form(sizes.a, sizes.op.transpose_a, has_more_rows, sizes.m, problem.k);
}

Graph form_of_b(const Sizes& sizes, const BlasProblem& problem) {
  return operand_form(sizes.b, !sizes.op.transpose_b, false, problem.n, problem.k);
}

// ---- the result ----

// A zero point of a factor of that dtype, as the factor was shifted.
Value shifted_zero(Value zero, DType factor) {
  const Value wide = cast(zero, DType::kI32);
  return factor == DType::kU8 ? wide - 128.0 : wide;
}

// Inputs: the products (items, m, padded n) in i32, the sums of a's rows and of b's columns, and
// the node's inputs behind its factors.
Graph form_of_result(const Node& node, const BlasProblem& problem, DType column_sums) {
  const Sizes sizes(node);
  const Shape domain{sizes.items, sizes.m, sizes.n};
  Graph form("result"), body("result");
  std::vector<Value> outer, inner;
  const auto add = [&](const TensorType& type) {
    const std::string name = fmt::format("{}", outer.size());
    Value x = input(form, name, type);
    if (outer.empty()) x = slice(x, -1, 0, sizes.n);
    outer.push_back(x);
    inner.push_back(broadcast(input(body, name, x.type()), domain));
  };
  add({DType::kI32, {sizes.items, sizes.m, problem.n}});
  add({DType::kF32, {sizes.items, sizes.m, 1}});
  add({column_sums, {sizes.products, 1, sizes.n}});
  for (size_t i = MatMulI8::kAZero; i < node.inputs.size(); ++i) {
    TensorType type = node.inputs[i].type();
    if (i == MatMulI8::kAZero && type.rank() == 1) type.shape = {1, sizes.m, 1};
    add(type);
  }
  // Their places are those of result_of(), which reads no factors.
  const std::vector<Value> inputs(inner.begin() + 1, inner.end());
  const Value rows_of_a = cast(inner[1], DType::kI32), columns_of_b = cast(inner[2], DType::kI32);
  const Value a_zero = shifted_zero(inputs[MatMulI8::kAZero], sizes.a.dtype),
              b_zero = shifted_zero(inputs[MatMulI8::kBZero], sizes.b.dtype);
  const Value sum = inner[0] - a_zero * columns_of_b - b_zero * rows_of_a +
                    a_zero * b_zero * static_cast<double>(sizes.k);
  body.add_output("0", sizes.op.result_of(sum, inputs));
  form.add_output("0", {&fused(form, body, outer, Site{"result"}), 0});
  return form;
}

// ---- the kernel ----

class BlasMatmulI8 final : public NodeKernel {
 public:
  BlasMatmulI8(std::shared_ptr<const Blas> blas,
               const Node& node,
               const BlasChoice& choice,
               const MakeForm& make,
               bool is_packed)
      : problem_(Sizes(node).problem(choice.rows)), product_(std::move(blas), problem_, choice) {
    const Sizes sizes(node);
    const auto bytes = [](int64_t elements, DType dtype) {
      return static_cast<size_t>(elements) * size_of(dtype);
    };
    take(product_.reserved_bytes());
    a_ = operand(form_of_a(sizes, problem_),
                 make,
                 bytes(sizes.items * sizes.m, DType::kF32),
                 problem_.bytes_of_a());
    if (!is_packed)
      b_ = operand(form_of_b(sizes, problem_),
                   make,
                   bytes(sizes.products * sizes.n, DType::kF32),
                   problem_.bytes_of_b());
    products_ = take(bytes(problem_.batches * problem_.m * problem_.n, DType::kI32));
    result_ = part(form_of_result(node, problem_, is_packed ? DType::kI32 : DType::kF32), make);
  }

  size_t workspace_bytes() const override { return bytes_; }
  void prepare() const override {
    for (const Part* each : {&a_.form, &b_.form, &result_})
      if (each->kernel != nullptr) each->kernel->prepare();
  }
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    const auto* const packed = static_cast<const std::byte*>(args.inputs[MatMulI8::kB]);
    const void* const a = read(a_, stream, args, args.inputs[MatMulI8::kA]);
    const void *b = packed, *column_sums = packed + problem_.bytes_of_b();
    if (b_.form.kernel != nullptr) {
      b = read(b_, stream, args, packed);
      column_sums = at(args, b_.sums);
    }
    product_.launch(cuda_stream(stream), a, b, at(args, products_), args.workspace);
    std::array<const void*, 8> inputs{at(args, products_), at(args, a_.sums), column_sums};
    size_t count = 3;
    for (size_t i = MatMulI8::kAZero; i < args.inputs.size(); ++i) inputs[count++] = args.inputs[i];
    run(result_, stream, args, std::span(inputs).first(count), args.outputs.first(1));
  }

 private:
  struct Part {
    std::unique_ptr<NodeKernel> kernel;
    size_t workspace = 0;
  };
  struct Operand {
    Part form;
    size_t sums = 0, bytes = 0;
    bool is_read_as_it_lies = false;
  };

  size_t take(size_t bytes) {
    const size_t begin = bytes_;
    bytes_ += aligned_bytes(bytes);
    return begin;
  }
  static std::byte* at(const KernelArgs& args, size_t offset) {
    return static_cast<std::byte*>(args.workspace) + offset;
  }

  Part part(const Graph& form, const MakeForm& make) {
    Part made{make(form)};
    made.workspace = take(made.kernel->workspace_bytes());
    return made;
  }
  Operand operand(const Graph& form, const MakeForm& make, size_t sums, size_t bytes) {
    Operand made{.form = part(form, make)};
    made.sums = take(sums);
    made.is_read_as_it_lies = form.outputs().size() == 1;
    if (!made.is_read_as_it_lies) made.bytes = take(bytes);
    return made;
  }

  // Addresses are read in the call.
  static void run(const Part& part,
                  ridge::Stream& stream,
                  const KernelArgs& args,
                  std::span<const void* const> inputs,
                  std::span<void* const> outputs) {
    part.kernel->launch(stream, {inputs, outputs, at(args, part.workspace)});
  }

  // Returns the address at which the library reads the operand.
  static const void* read(const Operand& operand,
                          ridge::Stream& stream,
                          const KernelArgs& args,
                          const void* from) {
    const std::array<const void*, 1> inputs{from};
    const std::array<void*, 2> outputs{at(args, operand.sums), at(args, operand.bytes)};
    const size_t count = operand.is_read_as_it_lies ? 1 : 2;
    run(operand.form, stream, args, inputs, std::span(outputs).first(count));
    return operand.is_read_as_it_lies ? from : outputs[1];
  }

  BlasProblem problem_;
  BlasProduct product_;
  Operand a_, b_;  // b_ has no kernel where b is packed
  Part result_;
  size_t products_ = 0;  // offset in the workspace
  size_t bytes_ = 0;
};

}  // namespace

std::string blas_i8_refusal(const Node& node) {
  const Sizes sizes(node);
  if (sizes.k < 2) return "has a depth of one, which is no row of a loop";
  if (sizes.k > kDeepest)
    return fmt::format(
        "has a depth of {}; sums of more than {} products may leave 32 bits", sizes.k, kDeepest);
  return {};
}

std::vector<BlasChoice> blas_i8_choices(const Blas& blas, const Node& node) {
  if (!node.is<MatMulI8>() || !blas_i8_refusal(node).empty()) return {};
  const Sizes sizes(node);
  std::vector<BlasChoice> choices = blas_algorithms(blas, sizes.problem(sizes.rows()));
  if (!choices.empty() || sizes.products > 1 || sizes.rows() >= kFewRows) return choices;
  choices = blas_algorithms(blas, sizes.problem(kFewRows));
  for (BlasChoice& each : choices) each.choice.name += fmt::format("_rows{}", kFewRows);
  return choices;
}

std::vector<Graph> blas_i8_forms(const Node& node, const BlasChoice& choice) {
  const Sizes sizes(node);
  const BlasProblem problem = sizes.problem(choice.rows);
  std::vector<Graph> forms;
  forms.push_back(form_of_a(sizes, problem));
  forms.push_back(form_of_b(sizes, problem));
  forms.push_back(form_of_result(node, problem, DType::kF32));
  return forms;
}

std::unique_ptr<NodeKernel> make_blas_i8_kernel(std::shared_ptr<const Blas> blas,
                                                const Node& node,
                                                const BlasChoice& choice,
                                                const MakeForm& make,
                                                bool is_packed) {
  return std::make_unique<BlasMatmulI8>(std::move(blas), node, choice, make, is_packed);
}

std::vector<PackedOperand> blas_i8_packed(const Node& node) {
  const Sizes sizes(node);
  if (node.inputs[MatMulI8::kB].rank() != 2) return {};
  const bool is_transposed = !sizes.op.transpose_b;
  const BlasProblem problem = sizes.problem(sizes.rows());
  const auto pack = [is_transposed, problem](Value b) {
    const SignedBytes made = signed_bytes(is_transposed ? transpose_last(b) : b, false);
    const Value bytes = padded_to(made.bytes, problem.n, problem.k);
    const Value sums = bytes_of_i32(cast(made.sums, DType::kI32));
    return concat({reshape(bytes, {-1}), reshape(sums, {-1})}, 0);
  };
  return {{.input = MatMulI8::kB,
           .layout = is_transposed ? "i8" : "i8.t",
           .pack = pack,
           .may_be_reshaped = true}};
}

}  // namespace ridge::cuda
