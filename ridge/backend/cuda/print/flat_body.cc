#include "ridge/backend/cuda/print/flat_body.h"

#include <algorithm>
#include <cmath>

#include "ridge/backend/cuda/print/index_map.h"
#include "ridge/base/hash.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {

FlatBody::FlatBody(const FusedBody& body,
                   Functions functions,
                   size_t shared,
                   std::span<const int64_t> lengths)
    : text(body),
      body_(body),
      shared_(shared),
      lengths_(lengths),
      longest_(is_list() ? *std::max_element(lengths.begin(), lengths.end()) : elements()),
      code_([this](const Node& node) { return leaf(node); }, functions) {
  const auto& outputs = body.graph.outputs();
  has_totals_ = std::any_of(outputs.begin(), outputs.end(), [&](const Output& output) {
    return body.role(*output.value.node) == LoopRole::kTotal;
  });
  width_ = pack_width();
  if (is_list()) text.include("list.h");
  for (size_t i = 0; i < outputs.size(); ++i) add_result(i);
  text.include_functions(code_);
}

// A pack has 16 bytes where all elements are of two or one; 4 elements where there are larger ones,
// which then are 16 bytes or two times that: more would only take registers.
int64_t FlatBody::pack_width() const {
  if (has_totals_) return 4;
  const auto is_large = [&](const Node& node) {
    return node.outputs[0].elements() == elements() && size_of(node.outputs[0].dtype) > 2;
  };
  for (const Node* node : body_.graph.inputs())
    if (is_large(*node)) return 4;
  for (const Output& output : body_.graph.outputs())
    if (is_large(*output.value.node)) return 4;
  return 8;
}

bool FlatBody::is_whole() const {
  if (!is_list()) return elements() % width_ == 0;
  return std::all_of(
      lengths_.begin(), lengths_.end(), [&](int64_t length) { return length % width_ == 0; });
}

// Pointers to a tensor of a list are no parameters: they are found for each tensor.
std::string FlatBody::in(size_t number) {
  if (is_list() && number >= shared_) return fmt::format("in{}", number);
  shared_reads_.insert(number);
  return text.input(number);
}

std::string FlatBody::out(size_t index) {
  return is_list() ? fmt::format("out{}", index) : text.output(index);
}

// How many elements are left from i on, where a pack may have fewer than it holds.
std::string FlatBody::left() const {
  if (is_whole()) return "";
  return has_totals_ || is_list() ? ", end - i" : fmt::format(", {} - i", elements());
}

std::string FlatBody::leaf(const Node& node) {
  if (node.is<Input>()) return element_of(input_number(node), node.outputs[0].dtype);
  if (node.is<Dropout>()) return dropout(node);
  if (!node.is<Broadcast>()) return {};
  const Node& from = *node.inputs[0].node;
  const size_t number = input_number(from);
  const DType dtype = node.outputs[0].dtype;
  const IndexMap map(from.outputs[0].shape, node.outputs[0].shape);
  if (map.is_same()) return element_of(number, dtype);
  const std::string source = in(number);
  const auto value = [&](std::vector<std::string>& to, const std::string& at) {
    const std::string name = fmt::format("b{}", node.id);
    to.push_back(
        fmt::format("const {} {} = value_of({}[{}]);", value_type(dtype), name, source, at));
    return name;
  };
  if (map.is_uniform()) return value(setup_, "0");
  if (!map.keeps_pieces(width_)) {
    needs_at_ = true;
    return value(code_.lines, map.text("at"));
  }
  if (map.axes[0].stride == 0) {
    const std::string name = fmt::format("b{}", node.id);
    loads_.push_back(fmt::format(
        "const {} {} = value_of({}[{}]);", value_type(dtype), name, source, map.text("i", width_)));
    return name;
  }
  loads_.push_back(fmt::format(
      "const auto p{}b = load<{}>({} + ({}));", node.id, width_, source, map.text("i")));
  return code_.name(node, fmt::format("value_of(p{}b.at[k])", node.id));
}

std::string FlatBody::element_of(size_t number, DType dtype) {
  const std::string name = fmt::format("x{}", number);
  if (!read_.insert(number).second) return name;
  loads_.push_back(
      fmt::format("const auto p{} = load<{}>({} + i{});", number, width_, in(number), left()));
  code_.lines.push_back(
      fmt::format("const {} {} = value_of(p{}.at[k]);", value_type(dtype), name, number));
  return name;
}

std::string FlatBody::dropout(const Node& node) {
  const auto& op = node.op_as<Dropout>();
  if (width_ % 4 != 0) throw Refused{"drops out of rows that are no multiples of four"};
  const std::string x = code_.value(*node.inputs[0].node);
  const DType dtype = node.outputs[0].dtype;
  text.needs_random = true;
  setup_.push_back(fmt::format("const RandomStream stream{}({}, {:#x}ull, {});",
                               node.id,
                               in(input_number(*node.inputs[1].node)),
                               hash64(op.key),
                               elements() / op.samples));
  loads_.push_back(fmt::format("const Draws<{}> draws{}(stream{}, i);", width_, node.id, node.id));
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

void FlatBody::add_result(size_t index) {
  const Node& node = *body_.graph.outputs()[index].value.node;
  const std::string_view type = stored_type(node.outputs[0].dtype);
  if (body_.role(node) == LoopRole::kTotal) return add_total(node, index);
  const std::string value = code_.value(node), to = out(index);
  loads_.push_back(fmt::format("Pack<{}, {}> q{};", type, width_, index));
  ends_.push_back(fmt::format("keep(q{}.at[k], {});", index, value));
  stores_.push_back(fmt::format("store<{}>({} + i, q{}{});", width_, to, index, left()));
}

void FlatBody::add_total(const Node& node, size_t index) {
  const std::string value = code_.value(*node.inputs[0].node);
  const DType dtype = node.outputs[0].dtype;
  const std::string_view type = stored_type(dtype);
  Total total{&node, index};
  std::string to, count = fmt::format("{}", pieces());
  if (is_list()) {
    to = out(index);
    count = "pieces";
  } else if (pieces() > 1) {
    total.at = text.take(static_cast<size_t>(pieces()) * size_of(dtype));
    to = text.workspace(total.at, type, fmt::format("part{}", index));
  } else {
    to = text.output(index);
  }
  totals_.push_back(total);
  sums_.push_back(fmt::format("Reduced<{}, {}> sum{};", combining(node), type, index));
  ends_.push_back(is_whole() ? fmt::format("sum{}.add(k, {});", index, value)
                             : fmt::format("if (i + k < end) sum{}.add(k, {});", index, value));
  results_.push_back(fmt::format("const {} total{} = sum{}.result();", type, index, index));
  const bool is_mean_now = !is_list() && pieces() == 1;
  const auto divisor = static_cast<double>(is_mean_now ? divisor_of(node) : 1);
  results_.push_back(fmt::format("if (lane == 0 && piece < {}) {}[piece] = total{}{};",
                                 count,
                                 to,
                                 index,
                                 divisor == 1.0 ? "" : " / " + number_text(dtype, divisor)));
}

void FlatBody::print_setup() {
  for (const size_t number : shared_reads_) text.input(number);
  text.lines.add_all(setup_);
}

void FlatBody::print_pack() {
  Lines& lines = text.lines;
  lines.add_all(loads_);
  lines.add("#pragma unroll");
  lines.open("for (int k = 0; k < {}; ++k)", width_);
  // Behind the last element an index would lead anywhere.
  if (needs_at_)
    lines.line("const {} at = {};",
               index_type(),
               is_whole() ? "i + k" : fmt::format("i + k < {0} ? i + k : {0} - 1", elements()));
  lines.add_all(code_.lines);
  lines.add_all(ends_);
  lines.close();
  lines.add_all(stores_);
}

void FlatBody::print_piece() {
  Lines& lines = text.lines;
  lines.add_all(sums_);
  // Without a number the compiler unrolls all of it, for more registers than that is worth.
  lines.add("#pragma unroll 2");
  lines.open("for ({} i = piece * {} + lane * 4; i < end; i += 64)", index_type(), kPiece);
  print_pack();
  lines.close();
  lines.add_all(results_);
}

}  // namespace ridge::cuda
