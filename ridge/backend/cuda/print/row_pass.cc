#include "ridge/backend/cuda/print/row_pass.h"

#include <algorithm>

#include "ridge/backend/cuda/print/index_map.h"
#include "ridge/backend/cuda/print/row_walk.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

class RowPass {
 public:
  RowPass(RowKernel& kernel, int level)
      : kernel_(kernel),
        layout_(kernel.layout),
        level_(level),
        walk_(walk()),
        code_([this](const Node& node) { return leaf(node); }, kernel.functions) {}

  std::string print() {
    for (const auto& node : kernel_.body.graph.nodes())
      if (is_found(*node)) add_reduction(*node);
    for (const RowColumnSums::Sum& sum : kernel_.sums.all())
      if (kernel_.levels.level(behind_reshapes(*sum.node->inputs[0].node)) == level_)
        add_to_sum(sum);
    for (size_t i = 0; i < kernel_.body.graph.outputs().size(); ++i)
      if (is_domain(kernel_.role(kernel_.node_of(i))) &&
          kernel_.levels.level(kernel_.node_of(i)) == level_)
        add_store(i);
    kernel_.text.include_functions(code_);
    if (ends_.empty()) return {};
    return text();
  }

 private:
  std::string text() {
    Lines lines(0);
    lines.add_all(before_);
    // Without a number the compiler unrolls all of it; a block of a long row has few registers.
    const int unrolled = layout_.is_long ? 1 : 2;
    const bool is_plain = walk_ == Walk::kInOrder || walk_ == Walk::kHeld;
    if (is_plain) {
      open_packs(lines, walk_, layout_.index_type(), unrolled, layout_.columns);
    } else {
      kernel_.text.include("packs.h");
      lines.open("const auto pass{} = [&](auto packs, int32_t c)", level_);
    }
    lines.add_all(loads_);
    lines.add("#pragma unroll");
    lines.open("for (int k = 0; k < {}; ++k)", width_of(walk_));
    lines.add_all(code_.lines);
    lines.add_all(ends_);
    lines.close();
    lines.add_all(stores_);
    lines.close(is_plain ? "" : ";");
    if (walk_ == Walk::kSpread) {
      // Many loads are under way at once: nothing else hides how long memory takes. A pass over
      // rows that are kept has fewer, so that another block has registers.
      const bool is_kept = std::ranges::all_of(
          read_, [&](size_t number) { return layout_.kept.contains(number) && level_ > 0; });
      const int few = kernel_.functions == Functions::kApprox ? 2 : 1;
      print_spread_loop(lines, level_, is_kept ? few : 4, layout_.columns, layout_.threads());
    }
    if (walk_ == Walk::kUnaligned) print_unaligned_loop(lines, level_, unrolled);
    lines.add_all(after_);
    return lines.text();
  }

  // Whether the pass ends with this reduction of the row.
  bool is_found(const Node& node) const {
    return kernel_.role(node) == LoopRole::kRow && is_loop_reduction(node) &&
           kernel_.levels.level(node) == level_ + 1;
  }

  Walk walk() const {
    const auto& nodes = kernel_.body.graph.nodes();
    const bool reduces =
        std::ranges::any_of(nodes, [&](const auto& node) { return is_found(*node); });
    if (layout_.is_held) return Walk::kHeld;
    if (layout_.is_spread || (layout_.is_long && !reduces)) return Walk::kSpread;
    return layout_.is_aligned ? Walk::kInOrder : Walk::kUnaligned;
  }

  std::string leaf(const Node& node) {
    const DType dtype = node.outputs[0].dtype;
    if (kernel_.role(node) == LoopRole::kRow) return row_value(node);
    if (node.is<Input>()) return element_of(input_number(node), dtype);
    if (node.is<OneHot>()) return mark(node);
    if (kernel_.levels.below_zero.contains(&node)) {
      const std::string below = code_.value(*node.inputs[0].node);
      return code_.name(node, fmt::format("approx::exp_below_zero({})", below));
    }
    if (node.is<MaskColumns>())
      return code_.name(node, masked_text(node, code_.value(*node.inputs[0].node)));
    if (!node.is<Broadcast>()) return {};
    const Node& from = *node.inputs[0].node;
    if (kernel_.role(from) == LoopRole::kRow) return row_value(from);
    const IndexMap map(from.outputs[0].shape, node.outputs[0].shape);
    if (map.is_same()) return element_of(input_number(from), dtype);
    if (!map.keeps_pieces(layout_.columns))
      throw Refused{"reads a broadcast input that changes within a row"};
    const std::string in = kernel_.text.input(input_number(from)),
                      base = map.text("at", layout_.columns);
    if (map.axes[0].stride == 0) {
      const std::string name = fmt::format("b{}", node.id);
      if (kernel_.declared.insert(node.id).second)
        before_.push_back(
            fmt::format("const {} {} = value_of({}[{}]);", value_type(dtype), name, in, base));
      return name;
    }
    const std::string row = fmt::format("{} + ({})", in, base);
    // A row of another tensor is not aligned where the packs of the domain's row are.
    const bool is_apart = walk_ == Walk::kSpread && !layout_.is_aligned;
    loads_.push_back(
        fmt::format("const auto p{}b = {};",
                    node.id,
                    is_apart ? fmt::format("EdgePack{{{}}}.load({}, c)", layout_.columns, row)
                             : load_text(walk_, row)));
    return code_.name(node, fmt::format("value_of(p{}b.at[k])", node.id));
  }

  // A value of the row that is not known yet is computed before the pass.
  std::string row_value(const Node& node) {
    const std::string name = kernel_.row_code.value(node);
    kernel_.move_row_code(before_);
    return name;
  }

  std::string element_of(size_t number, DType dtype) {
    const std::string name = fmt::format("x{}", number);
    if (!read_.insert(number).second) return name;
    const bool is_first = ++kernel_.passes_reading[number] == 1;
    if (layout_.is_held) {
      if (is_first) kernel_.held.push_back(number);
      code_.lines.push_back(
          fmt::format("const {} {} = value_of(h{}[j].at[k]);", value_type(dtype), name, number));
      return name;
    }
    const auto kept = layout_.kept.find(number);
    const std::string row = kept != layout_.kept.end() && !layout_.is_spread
                                ? fmt::format("kept{}", number)
                                : kernel_.text.input(number) + " + at";
    if (kept == layout_.kept.end() || !layout_.is_spread)
      loads_.push_back(fmt::format("const auto p{} = {};", number, load_text(walk_, row)));
    else
      add_kept_load(loads_, walk_, number, row, is_first, layout_.columns, kept->second.elements);
    code_.lines.push_back(
        fmt::format("const {} {} = value_of(p{}.at[k]);", value_type(dtype), name, number));
    return name;
  }

  std::string mark(const Node& node) {
    const std::string column = row_value(behind_reshapes(*node.inputs[0].node));
    const std::string marked = fmt::format("marked{}", node.id);
    if (kernel_.declared.insert(node.id).second)
      before_.push_back(
          fmt::format("const int32_t {0} = {1} >= 0 && {1} < {2} ? static_cast<int32_t>({1}) : -1;",
                      marked,
                      column,
                      layout_.columns));
    return code_.name(node, marked_text(node, marked));
  }

  std::string guarded(std::string statement) const {
    return layout_.is_aligned ? statement : "if (packs.has(c + k)) " + statement;
  }

  void add_reduction(const Node& node) {
    if (kernel_.levels.is_found(node)) return;
    if (kernel_.levels.maximum_of.contains(&node)) return add_exponentials(node);
    const std::string value = code_.value(*node.inputs[0].node);
    const DType dtype = node.outputs[0].dtype;
    const std::string_view type = stored_type(dtype), by = combining_text(node);
    const std::string sum = fmt::format("r{}", node.id);
    before_.push_back(
        fmt::format("Reduced<{}, {}{}> {};", by, type, layout_.is_held ? ", 2" : "", sum));
    ends_.push_back(guarded(fmt::format("{}.add(k, {});", sum, value)));
    std::string result = sum + ".result()";
    if (layout_.is_long) {
      declare_pieces(type, fmt::format("pieces{}", node.id), size_of(dtype));
      result =
          fmt::format("over_pieces<{}>({}, pieces{}, {})", by, result, node.id, layout_.pieces());
    }
    if (node.is<ReduceMean>())
      result += " / " + number_text(dtype, static_cast<double>(divisor_of(node)));
    const std::string name = fmt::format("{}_{}", node.op->name(), node.id);
    after_.push_back(fmt::format("const {} {} = {};", type, name, result));
    kernel_.row_code.know(node, name);
  }

  // The struct that combines two elements of the row.
  std::string_view combining_text(const Node& node) {
    const bool is_approx = kernel_.functions == Functions::kApprox && node.is<ReduceMax>() &&
                           node.outputs[0].dtype == DType::kF32;
    if (!is_approx) return combining(node);
    kernel_.text.include("approx.h");
    return "approx::Larger";
  }

  void declare_pieces(std::string_view type, const std::string& name, size_t bytes) {
    kernel_.setup.push_back(fmt::format("__shared__ {} {}[{}];", type, name, layout_.pieces()));
    kernel_.text.static_shared_bytes += static_cast<size_t>(layout_.pieces()) * bytes;
  }

  // A sum of exponentials, and the maximum around which they are.
  void add_exponentials(const Node& sum) {
    const Node& maximum = *kernel_.levels.maximum_of.at(&sum);
    const std::string value = code_.value(*maximum.inputs[0].node);
    const int id = sum.id;
    before_.push_back(fmt::format("approx::Exponentials r{};", id));
    loads_.push_back(fmt::format("float v{}[4];", id));
    const std::string guarded_value =
        layout_.is_aligned ? value
                           : fmt::format("packs.has(c + k) ? {} : -__builtin_inff()", value);
    ends_.push_back(fmt::format("v{}[k] = {};", id, guarded_value));
    stores_.push_back(fmt::format("r{0}.add(v{0});", id));
    if (layout_.is_long) {
      for (const std::string_view name : {"maxima", "pieces"})
        declare_pieces("float", fmt::format("{}{}", name, id), sizeof(float));
      after_.push_back(
          fmt::format("r{0}.combine(maxima{0}, pieces{0}, {1});", id, layout_.pieces()));
    } else {
      after_.push_back(fmt::format("r{}.combine();", id));
    }
    const auto give = [&](const Node& node, std::string_view what) {
      const std::string name = fmt::format("{}_{}", node.op->name(), node.id);
      after_.push_back(fmt::format("const float {} = r{}.{}();", name, id, what));
      kernel_.row_code.know(node, name);
    };
    give(maximum, "largest");
    give(sum, "total");
  }

  void add_to_sum(const RowColumnSums::Sum& sum) {
    const std::string value = code_.value(*sum.node->inputs[0].node);
    if (layout_.is_aligned) return add_packs_to_sum(sum, value);
    if (layout_.block_rows > 1)
      ends_.push_back(
          guarded(fmt::format("{}[group * {} + c + k] = {};", sum.rows, layout_.columns, value)));
    else
      ends_.push_back(guarded(fmt::format("{0}[c + k] = {0}[c + k] + {1};", sum.of, value)));
  }

  void add_packs_to_sum(const RowColumnSums::Sum& sum, const std::string& value) {
    const size_t id = sum.output;
    const std::string_view type = stored_type(sum.node->outputs[0].dtype);
    if (layout_.block_rows > 1) {
      const std::string place = fmt::format("{} + group * {} + c", sum.rows, layout_.columns);
      loads_.push_back(fmt::format("Pack<{}, {}> s{};", type, width_of(walk_), id));
      ends_.push_back(fmt::format("s{}.at[k] = {};", id, value));
      stores_.push_back(fmt::format("store<{}>({}, s{});", width_of(walk_), place, id));
    } else {
      loads_.push_back(fmt::format("auto s{} = load<4>({} + c);", id, sum.of));
      ends_.push_back(fmt::format("s{0}.at[k] = s{0}.at[k] + {1};", id, value));
      stores_.push_back(fmt::format("store<4>({} + c, s{});", sum.of, id));
    }
  }

  void add_store(size_t index) {
    const std::string value = code_.value(kernel_.node_of(index)), out = kernel_.text.output(index);
    loads_.push_back(fmt::format("Pack<{}, {}> q{};",
                                 stored_type(kernel_.node_of(index).outputs[0].dtype),
                                 width_of(walk_),
                                 index));
    ends_.push_back(fmt::format("keep(q{}.at[k], {});", index, value));
    stores_.push_back(store_text(walk_, out + " + at", fmt::format("q{}", index)));
  }

  RowKernel& kernel_;
  const RowLayout& layout_;
  int level_;
  Walk walk_;
  Statements code_;  // of one element
  std::vector<std::string> before_, loads_, ends_, stores_, after_;
  std::set<size_t> read_;  // inputs
};

}  // namespace

void RowKernel::move_row_code(std::vector<std::string>& lines) {
  lines.insert(lines.end(), row_code.lines.begin(), row_code.lines.end());
  row_code.lines.clear();
}

std::string RowKernel::row_leaf(const Node& node) {
  const auto read = [&](const Node& from, std::string_view at) {
    const size_t number = input_number(from);
    return row_code.name(node, fmt::format("value_of({}[{}])", text.input(number), at));
  };
  if (node.is<Input>()) return read(node, "row");
  if (node.is<Broadcast>()) return read(*node.inputs[0].node, "0");
  return {};
}

std::string print_row_pass(RowKernel& kernel, int level) { return RowPass(kernel, level).print(); }

}  // namespace ridge::cuda
