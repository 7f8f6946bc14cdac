// Bodies without rows: a grid-stride loop over packs of elements; with reductions of all elements,
// over pieces of 2048, a group of sixteen threads each.
//
//   for (uint32_t i = first; i < n; i += stride) {
//     const Pack<float, 4> p0 = load<4>(in0 + i);
//     Pack<float, 4> q0;
//     for (int k = 0; k < 4; ++k) { ...; set(q0.at[k], mul_3); }
//     store<4>(out0 + i, q0);
//   }
//
// For a list of tensors the loop runs over chunks of 4096 elements, or pieces, of all of them. A
// table says which tensor a chunk is of, and `list` where that tensor lies.
#include <algorithm>
#include <cmath>
#include <set>

#include "ridge/backend/cuda/print/index_map.h"
#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/base/hash.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

// Elements of a tensor of a list that a block takes at a time: enough to make up for finding out
// which tensor it is, few enough for small tensors to have blocks.
constexpr int64_t kChunk = 4096;

class FlatPrinter {
 public:
  // With `lengths` the body is that of a list of tensors.
  FlatPrinter(const FusedBody& body,
              size_t shared,
              std::vector<int64_t> lengths,
              Functions functions = Functions::kOfCpu)
      : body_(body),
        shared_(shared),
        lengths_(std::move(lengths)),
        n_(body.domain.elements),
        own_inputs_(body.graph.inputs().size() - shared),
        text_(body),
        code_([this](const Node& node) { return leaf(node); }, functions) {
    for (const Output& output : body.graph.outputs())
      has_totals_ = has_totals_ || body.role(*output.value.node) == LoopRole::kTotal;
    width_ = pack_width();
    longest_ = is_list() ? *std::max_element(lengths_.begin(), lengths_.end()) : n_;
    if (is_list()) text_.include("list.h");
  }

  PrintedKernel print() {
    for (size_t i = 0; i < body_.graph.outputs().size(); ++i) add_result(i);
    if (is_list()) return print_lists();
    text_.lines.add_all(setup_);
    has_totals_ ? print_pieces() : print_stride();
    text_.include_functions(code_);
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
  bool is_list() const { return !lengths_.empty(); }
  bool is_whole() const {
    if (!is_list()) return n_ % width_ == 0;
    return std::all_of(
        lengths_.begin(), lengths_.end(), [&](int64_t length) { return length % width_ == 0; });
  }
  // Unsigned, so that divisions by what is known are multiplications.
  std::string_view index_type() const { return index_type_of(longest_); }
  // The names of pointers; those of a tensor of a list are no parameters.
  std::string in(size_t number) {
    if (is_list() && number >= shared_) return fmt::format("in{}", number);
    shared_reads_.insert(number);
    return text_.input(number);
  }
  std::string out(size_t index) {
    return is_list() ? fmt::format("out{}", index) : text_.output(index);
  }
  // How many elements are left from i on, where a pack may have fewer than it holds.
  std::string left() const {
    if (is_whole()) return "";
    return has_totals_ || is_list() ? ", end - i" : fmt::format(", {} - i", n_);
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
      loads_.push_back(fmt::format("const {} {} = value_of({}[{}]);",
                                   value_type(dtype),
                                   name,
                                   source,
                                   map.text("i", width_)));
      return name;
    }
    loads_.push_back(fmt::format(
        "const auto p{}b = load<{}>({} + ({}));", node.id, width_, source, map.text("i")));
    return code_.name(node, fmt::format("value_of(p{}b.at[k])", node.id));
  }

  std::string element_of(size_t number, DType dtype) {
    const std::string name = fmt::format("x{}", number);
    if (!read_.emplace(number, true).second) return name;
    loads_.push_back(
        fmt::format("const auto p{} = load<{}>({} + i{});", number, width_, in(number), left()));
    code_.lines.push_back(
        fmt::format("const {} {} = value_of(p{}.at[k]);", value_type(dtype), name, number));
    return name;
  }

  std::string dropout(const Node& node) {
    const auto& op = node.op_as<Dropout>();
    if (width_ % 4 != 0) throw Refused{"drops out of rows that are no multiples of four"};
    const std::string x = code_.value(*node.inputs[0].node);
    const DType dtype = node.outputs[0].dtype;
    text_.needs_random = true;
    setup_.push_back(fmt::format("const RandomStream stream{}({}, {:#x}ull, {});",
                                 node.id,
                                 in(input_number(*node.inputs[1].node)),
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
    const std::string value = code_.value(node), to = out(index);
    loads_.push_back(fmt::format("Pack<{}, {}> q{};", type, width_, index));
    ends_.push_back(fmt::format("keep(q{}.at[k], {});", index, value));
    stores_.push_back(fmt::format("store<{}>({} + i, q{}{});", width_, to, index, left()));
  }

  void add_total(const Node& node, size_t index) {
    const std::string value = code_.value(*node.inputs[0].node);
    const DType dtype = node.outputs[0].dtype;
    const std::string_view type = stored_type(dtype);
    Total total{&node, index};
    std::string to, count = fmt::format("{}", pieces());
    if (is_list()) {
      to = out(index);
      count = "pieces";
    } else if (pieces() > 1) {
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
    const bool is_mean_now = !is_list() && pieces() == 1;
    const auto divisor = static_cast<double>(is_mean_now ? divisor_of(node) : 1);
    results_.push_back(fmt::format("if (lane == 0 && piece < {}) {}[piece] = total{}{};",
                                   count,
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
    print_piece();
    lines.close();
    text_.finish("", ceil_div(pieces(), groups), kThreads);
  }

  void print_piece() {
    Lines& lines = text_.lines;
    lines.add_all(sums_);
    // Left to itself the compiler unrolls all of it, for more registers than that is worth.
    lines.add("#pragma unroll 2");
    lines.open("for ({} i = piece * {} + lane * 4; i < end; i += 64)", index_type(), kPiece);
    print_pack();
    lines.close();
    lines.add_all(results_);
  }

  // ---- lists ----

  // A part of a list that one launch has room for, under construction.
  struct Launched {
    std::vector<KernelOperand> operands;
    std::vector<int64_t> lengths;
    std::vector<int64_t> firsts;  // by tensor: chunks or pieces of those before it
    int64_t all = 0;              // of chunks or pieces

    void add(int64_t length, int64_t unit) {
      lengths.push_back(length);
      firsts.push_back(all);
      all += ceil_div(length, unit);
    }
  };

  PrintedKernel print_lists() {
    const size_t results = body_.graph.outputs().size();
    find_targets(results);
    const size_t most = (KernelText::kMostOperands - shared_) / (own_inputs_ + results);
    for (size_t first = 0; first < lengths_.size(); first += most) {
      Launched part;
      for (size_t tensor = first; tensor < std::min(first + most, lengths_.size()); ++tensor) {
        part.add(lengths_[tensor], has_totals_ ? kPiece : kChunk);
        for (size_t i = 0; i < own_inputs_; ++i)
          part.operands.push_back({KernelOperand::kInput, shared_ + tensor * own_inputs_ + i});
        const KernelOperand* const targets = targets_.data() + tensor * results;
        part.operands.insert(part.operands.end(), targets, targets + results);
      }
      print_part(std::move(part));
    }
    text_.include_functions(code_);
    for (const Total& total : totals_) print_stages(total);
    return text_.result(
        "loops",
        fmt::format(
            "{} tensors of up to {} elements, {} at a time.", lengths_.size(), longest_, width_));
  }

  // Finds where the first launches write: partial results, for tensors of several pieces.
  void find_targets(size_t results) {
    for (size_t tensor = 0; tensor < lengths_.size(); ++tensor)
      for (size_t i = 0; i < results; ++i)
        targets_.push_back({KernelOperand::kOutput, tensor * results + i});
    for (const Total& total : totals_)
      for (size_t tensor = 0; tensor < lengths_.size(); ++tensor)
        if (const int64_t count = ceil_div(lengths_[tensor], kPiece); count > 1)
          targets_[tensor * results + total.output] = partial(count, total);
  }

  KernelOperand partial(int64_t count, const Total& total) {
    const size_t size = size_of(total.node->outputs[0].dtype);
    return {KernelOperand::kWorkspace, text_.take(static_cast<size_t>(count) * size)};
  }

  // Ends the function that is being written: `list` and its tables are the part's.
  void finish_part(Launched part, int64_t units_of_block) {
    if (part.all >= int64_t{1} << 31) throw Refused{"has too many elements"};
    const auto table = [&](std::string_view name, std::string_view type, auto numbers) {
      text_.declare(fmt::format("\n__constant__ const {} {}_{}{}[] = {{{}}};",
                                type,
                                KernelText::kName,
                                name,
                                launches_,
                                fmt::join(numbers, ", ")));
    };
    table("firsts", "uint32_t", part.firsts);
    table("lengths", index_type(), part.lengths);
    text_.declare("\n");
    text_.list(std::move(part.operands));
    text_.finish(fmt::format("_{}", launches_++), ceil_div(part.all, units_of_block), kThreads);
  }
  std::string table_name(std::string_view name) const {
    return fmt::format("{}_{}{}", KernelText::kName, name, launches_);
  }

  void print_part(Launched part) {
    Lines& lines = text_.lines;
    for (const size_t number : shared_reads_) text_.input(number);
    lines.add_all(setup_);
    const int64_t units = has_totals_ ? kThreads / kGroup : 1;
    if (has_totals_) lines.line("const uint32_t lane = threadIdx.x % {};", kGroup);
    lines.open("for (uint32_t first = blockIdx.x * {0}; first < {1}; first += gridDim.x * {0})",
               units,
               part.all);
    lines.line("const uint32_t unit = first{};",
               has_totals_ ? fmt::format(" + threadIdx.x / {}", kGroup) : "");
    lines.line("const uint32_t tensor = tensor_of(unit, {}, {});",
               table_name("firsts"),
               part.lengths.size());
    print_pointers();
    lines.line("const {} n = {}[tensor];", index_type(), table_name("lengths"));
    has_totals_ ? print_listed_piece() : print_chunk();
    lines.close();
    finish_part(std::move(part), units);
  }

  void print_pointers() {
    const size_t results = body_.graph.outputs().size(), slots = own_inputs_ + results;
    for (const Node* node : body_.graph.inputs())
      if (const size_t number = input_number(*node); number >= shared_)
        print_pointer(
            fmt::format("const {}* const in{}", stored_type(node->outputs[0].dtype), number),
            slots,
            number - shared_);
    for (size_t i = 0; i < results; ++i)
      print_pointer(
          fmt::format("{}* const out{}", stored_type(body_.graph.outputs()[i].value.dtype()), i),
          slots,
          own_inputs_ + i);
  }
  void print_pointer(const std::string& declared, size_t slots, size_t slot) {
    const std::string_view type = std::string_view(declared).substr(0, declared.rfind(" const "));
    text_.lines.line(
        "{} = static_cast<{}>(list.at[tensor * {} + {}]);", declared, type, slots, slot);
  }

  void print_chunk() {
    Lines& lines = text_.lines;
    const std::string_view type = index_type();
    lines.line("const {0} begin = static_cast<{0}>(unit - {1}[tensor]) * {2};",
               type,
               table_name("firsts"),
               kChunk);
    lines.line("const {0} end = n - begin < {1} ? n : begin + {1};", type, kChunk);
    lines.open(
        "for ({} i = begin + threadIdx.x * {}; i < end; i += {})", type, width_, kThreads * width_);
    print_pack();
    lines.close();
  }

  void print_listed_piece() {
    Lines& lines = text_.lines;
    const std::string_view type = index_type();
    lines.line("const {0} piece = unit - {1}[tensor], pieces = (n + {2}) / {3};",
               type,
               table_name("firsts"),
               kPiece - 1,
               kPiece);
    lines.line("const {0} end = piece + 1 < pieces ? (piece + 1) * {1} : piece < pieces ? n : 0;",
               type,
               kPiece);
    print_piece();
  }

  // What is left of a total, for the tensors of several pieces.
  void print_stages(const Total& total) {
    struct Part {
      KernelOperand from, output;
      int64_t count;
    };
    const size_t results = body_.graph.outputs().size();
    std::vector<Part> open;
    for (size_t tensor = 0; tensor < lengths_.size(); ++tensor)
      if (const int64_t count = ceil_div(lengths_[tensor], kPiece); count > 1) {
        const size_t at = tensor * results + total.output;
        open.push_back({targets_[at], {KernelOperand::kOutput, at}, count});
      }
    while (!open.empty()) {
      std::vector<Part> next;
      for (size_t first = 0; first < open.size(); first += KernelText::kMostOperands / 2) {
        Launched part;
        const size_t last = std::min(open.size(), first + KernelText::kMostOperands / 2);
        for (size_t i = first; i < last; ++i) {
          const int64_t pieces = ceil_div(open[i].count, kPiece);
          const KernelOperand to = pieces > 1 ? partial(pieces, total) : open[i].output;
          part.operands.insert(part.operands.end(), {open[i].from, to});
          part.add(open[i].count, kPiece);
          if (pieces > 1) next.push_back({to, open[i].output, pieces});
        }
        text_.lines.line("reduce_list<{}, {}>(list, {}, {}, {}, {});",
                         combining(*total.node),
                         stored_type(total.node->outputs[0].dtype),
                         table_name("firsts"),
                         table_name("lengths"),
                         part.lengths.size(),
                         part.all);
        finish_part(std::move(part), kThreads / kGroup);
      }
      open = std::move(next);
    }
  }

  const FusedBody& body_;
  size_t shared_;
  std::vector<int64_t> lengths_;  // of the tensors of a list
  int64_t n_;
  int64_t longest_ = 0;
  size_t own_inputs_;  // of each tensor of a list
  int64_t width_ = 4;
  bool has_totals_ = false, needs_at_ = false;
  KernelText text_;
  Statements code_;  // of one element
  std::vector<std::string> loads_, setup_, ends_, stores_, sums_, results_;
  std::map<size_t, bool> read_;
  std::set<size_t> shared_reads_;
  std::vector<Total> totals_;
  std::vector<KernelOperand> targets_;  // of a list, by tensor and result
  int launches_ = 0;
};

}  // namespace

PrintedKernel print_flat(const FusedBody& body, Functions functions) {
  return FlatPrinter(body, 0, {}, functions).print();
}

PrintedKernel print_list(const FusedBody& body, size_t shared, std::vector<int64_t> lengths) {
  return FlatPrinter(body, shared, std::move(lengths)).print();
}

}  // namespace ridge::cuda
