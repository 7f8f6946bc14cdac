// Bodies without rows: a grid-stride loop over packs of elements; with reductions of all elements,
// over pieces of 2048, a group of sixteen threads each.
//
//   for (uint32_t i = first; i < n; i += stride) {
//     const Pack<float, 4> p0 = load<4>(in0 + i);
//     Pack<float, 4> q0;
//     for (int k = 0; k < 4; ++k) { ...; set(q0.at[k], mul_3); }
//     store<4>(out0 + i, q0);
//   }
#include <cmath>

#include "ridge/backend/cuda/index_map.h"
#include "ridge/backend/cuda/kernel_text.h"
#include "ridge/backend/cuda/scalar_text.h"
#include "ridge/base/hash.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

class FlatPrinter {
 public:
  explicit FlatPrinter(const FusedBody& body)
      : body_(body),
        n_(body.domain.elements),
        text_(body),
        code_([this](const Node& node) { return leaf(node); }) {
    for (const Output& output : body.graph.outputs())
      has_totals_ = has_totals_ || body.role(*output.value.node) == LoopRole::kTotal;
    width_ = pack_width();
  }

  PrintedKernel print() {
    for (size_t i = 0; i < body_.graph.outputs().size(); ++i) add_result(i);
    text_.lines.add_all(setup_);
    has_totals_ ? print_pieces() : print_stride();
    text_.needs_functions = code_.needs_functions;
    for (const Total& total : totals_)
      if (pieces() > 1) text_.add_reduction(*total.node, total.at, pieces(), total.output);
    return text_.result("loop", fmt::format("{} elements, {} at a time.", n_, width_));
  }

 private:
  struct Total {
    const Node* node;
    size_t output, at = 0;
  };

  // 16 bytes where all elements are of two or one; 4 elements where there are larger ones, which
  // then are 16 bytes or two times that: more would only take registers.
  int64_t pack_width() const {
    if (has_totals_) return 4;
    const auto is_large = [&](const Node& node) {
      return node.outputs[0].elements() == n_ && size_of(node.outputs[0].dtype) > 2;
    };
    for (const Node* node : body_.graph.inputs())
      if (is_large(*node)) return 4;
    for (const Output& output : body_.graph.outputs())
      if (is_large(*output.value.node)) return 4;
    return 8;
  }

  int64_t pieces() const { return ceil_div(n_, kPiece); }
  bool is_whole() const { return n_ % width_ == 0; }
  // Unsigned, so that divisions by what is known are multiplications.
  std::string_view index_type() const { return n_ < int64_t{1} << 31 ? "uint32_t" : "uint64_t"; }
  // How many elements are left from i on, where a pack may have fewer than it holds.
  std::string left() const {
    if (is_whole()) return "";
    return has_totals_ ? ", end - i" : fmt::format(", {} - i", n_);
  }

  std::string leaf(const Node& node) {
    if (node.is<Input>()) return element_of(input_number(node), node.outputs[0].dtype);
    if (node.is<Dropout>()) return dropout(node);
    if (!node.is<Broadcast>()) return {};
    const Node& from = *node.inputs[0].node;
    const size_t number = input_number(from);
    const DType dtype = node.outputs[0].dtype;
    const IndexMap map(from.outputs[0].shape, node.outputs[0].shape);
    if (map.is_same()) return element_of(number, dtype);
    const std::string in = text_.input(number);
    const auto value = [&](std::vector<std::string>& to, const std::string& at) {
      const std::string name = fmt::format("b{}", node.id);
      to.push_back(fmt::format("const {} {} = value_of({}[{}]);", value_type(dtype), name, in, at));
      return name;
    };
    if (map.is_uniform()) return value(setup_, "0");
    if (!map.keeps_pieces(width_)) {
      needs_at_ = true;
      return value(code_.lines, map.text("at"));
    }
    if (map.axes[0].stride == 0) return value(loads_, map.text("i", width_));
    loads_.push_back(
        fmt::format("const auto p{}b = load<{}>({} + ({}));", node.id, width_, in, map.text("i")));
    return code_.name(node, fmt::format("value_of(p{}b.at[k])", node.id));
  }

  std::string element_of(size_t number, DType dtype) {
    const std::string in = text_.input(number), name = fmt::format("x{}", number);
    if (!read_.emplace(number, true).second) return name;
    loads_.push_back(
        fmt::format("const auto p{} = load<{}>({} + i{});", number, width_, in, left()));
    code_.lines.push_back(
        fmt::format("const {} {} = value_of(p{}.at[k]);", value_type(dtype), name, number));
    return name;
  }

  std::string dropout(const Node& node) {
    const auto& op = node.op_as<Dropout>();
    const std::string x = code_.value(*node.inputs[0].node);
    const DType dtype = node.outputs[0].dtype;
    text_.needs_random = true;
    setup_.push_back(fmt::format("const RandomStream stream{}({}, {:#x}ull, {});",
                                 node.id,
                                 text_.input(input_number(*node.inputs[1].node)),
                                 hash64(op.key),
                                 n_ / op.samples));
    loads_.push_back(
        fmt::format("const Draws<{}> draws{}(stream{}, i);", width_, node.id, node.id));
    // A number u of 24 bits keeps its element where u 2^-24 >= p; p 2^24 is exact.
    const auto threshold = static_cast<uint32_t>(std::ceil(op.p * 0x1p24));
    const double factor = 1.0 / (1.0 - op.p);
    const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    std::string kept = fmt::format("{} * {}", x, number_text(wide, factor));
    if (dtype == DType::kF16 || dtype == DType::kBF16)
      kept = fmt::format("round_{}({})", name_of(dtype), kept);
    return code_.name(
        node,
        fmt::format(
            "draws{}.at[k] < {}u ? {} : {}", node.id, threshold, number_text(wide, 0.0), kept));
  }

  void add_result(size_t index) {
    const Node& node = *body_.graph.outputs()[index].value.node;
    const std::string_view type = stored_type(node.outputs[0].dtype);
    if (body_.role(node) == LoopRole::kTotal) return add_total(node, index);
    const std::string value = code_.value(node), out = text_.output(index);
    loads_.push_back(fmt::format("Pack<{}, {}> q{};", type, width_, index));
    ends_.push_back(fmt::format("set(q{}.at[k], {});", index, value));
    stores_.push_back(fmt::format("store<{}>({} + i, q{}{});", width_, out, index, left()));
  }

  void add_total(const Node& node, size_t index) {
    const std::string value = code_.value(*node.inputs[0].node);
    const DType dtype = node.outputs[0].dtype;
    const std::string_view type = stored_type(dtype);
    Total total{&node, index};
    std::string to;
    if (pieces() > 1) {
      total.at = text_.take(static_cast<size_t>(pieces()) * size_of(dtype));
      to = text_.workspace(total.at, type, fmt::format("part{}", index));
    } else {
      to = text_.output(index);
    }
    totals_.push_back(total);
    sums_.push_back(fmt::format("Reduced<{}, {}> sum{};", combining(node), type, index));
    ends_.push_back(is_whole() ? fmt::format("sum{}.add(k, {});", index, value)
                               : fmt::format("if (i + k < end) sum{}.add(k, {});", index, value));
    results_.push_back(fmt::format("const {} total{} = sum{}.result();", type, index, index));
    const auto divisor = static_cast<double>(pieces() > 1 ? 1 : divisor_of(node));
    results_.push_back(fmt::format("if (lane == 0 && piece < {}) {}[piece] = total{}{};",
                                   pieces(),
                                   to,
                                   index,
                                   divisor == 1.0 ? "" : " / " + number_text(dtype, divisor)));
  }

  void print_pack() {
    Lines& lines = text_.lines;
    lines.add_all(loads_);
    lines.add("#pragma unroll");
    lines.open("for (int k = 0; k < {}; ++k)", width_);
    // Behind the last element an index would lead anywhere.
    if (needs_at_)
      lines.line("const {} at = {};",
                 index_type(),
                 is_whole() ? "i + k" : fmt::format("i + k < {0} ? i + k : {0} - 1", n_));
    lines.add_all(code_.lines);
    lines.add_all(ends_);
    lines.close();
    lines.add_all(stores_);
  }

  void print_stride() {
    Lines& lines = text_.lines;
    // The only block reads {seed, step, first sample} before one of its threads writes over them.
    if (text_.needs_random && n_ <= 3) lines.add("__syncthreads();");
    const std::string_view type = index_type();
    lines.line("const {0} stride = static_cast<{0}>(gridDim.x) * {1};", type, kThreads * width_);
    lines.line("const {0} first = (static_cast<{0}>(blockIdx.x) * {1} + threadIdx.x) * {2};",
               type,
               kThreads,
               width_);
    lines.open("for ({} i = first; i < {}; i += stride)", type, n_);
    print_pack();
    lines.close();
    text_.finish("", ceil_div(n_, kThreads * width_), kThreads);
  }

  void print_pieces() {
    Lines& lines = text_.lines;
    if (text_.needs_random && n_ <= 3) lines.add("__syncthreads();");
    const std::string_view type = index_type();
    const int64_t groups = kThreads / kGroup;
    lines.line("const uint32_t lane = threadIdx.x % {};", kGroup);
    lines.open("for ({0} first = blockIdx.x * {1}; first < {2}; first += gridDim.x * {1})",
               type,
               groups,
               pieces());
    lines.line("const {} piece = first + threadIdx.x / {};", type, kGroup);
    lines.line("const {0} end = piece + 1 < {1} ? (piece + 1) * {2} : piece < {1} ? {3} : 0;",
               type,
               pieces(),
               kPiece,
               n_);
    lines.add_all(sums_);
    // Left to itself the compiler unrolls all of it, for more registers than that is worth.
    lines.add("#pragma unroll 2");
    lines.open("for ({} i = piece * {} + lane * 4; i < end; i += 64)", type, kPiece);
    print_pack();
    lines.close();
    lines.add_all(results_);
    lines.close();
    text_.finish("", ceil_div(pieces(), groups), kThreads);
  }

  const FusedBody& body_;
  int64_t n_;
  int64_t width_ = 4;
  bool has_totals_ = false, needs_at_ = false;
  KernelText text_;
  Statements code_;  // of one element
  std::vector<std::string> setup_, loads_, ends_, stores_, sums_, results_;
  std::map<size_t, bool> read_;
  std::vector<Total> totals_;
};

}  // namespace

PrintedKernel print_flat(const FusedBody& body) { return FlatPrinter(body).print(); }

}  // namespace ridge::cuda
