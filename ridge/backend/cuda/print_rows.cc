// Bodies over rows: a group of sixteen threads for each piece of 2048 columns, so that a block has
// several short rows or one long one. A pass over the elements ends at each reduction of the row;
// what comes between is computed by every thread of the row. Passes read their inputs again, from
// the caches, and compute again what several of them need. What several passes read of a long row
// is kept in shared memory where it has room: rows of 50257 of all blocks are more than the caches
// hold.
//
// Sums over all rows: a block takes 64 rows. Where it has several at a time, they are added up one
// after the other from shared memory, in the order that the CPU adds them in.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ridge/backend/cuda/index_map.h"
#include "ridge/backend/cuda/kernel_text.h"
#include "ridge/backend/cuda/scalar_text.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

constexpr int64_t kMostRows = 16;           // of a block
constexpr int64_t kGoodShared = 96 << 10;   // leaves room for a second block
constexpr int64_t kMostShared = 160 << 10;  // of a block on every device from sm_80 on

// Inputs whose rows are kept in shared memory, by number.
using KeptRows = std::set<size_t>;

class RowPrinter {
 public:
  explicit RowPrinter(const FusedBody& body, KeptRows kept = {})
      : body_(body),
        rows_(body.domain.rows()),
        columns_(body.domain.columns),
        kept_(std::move(kept)),
        text_(body),
        row_code_([this](const Node& node) { return row_leaf(node); }) {
    for (size_t i = 0; i < body.graph.outputs().size(); ++i)
      if (role(*node_of(i)) == LoopRole::kColumns) sums_.push_back({node_of(i), i});
    choose_rows();
    place_sums();
    place_kept_rows();
  }

  /// After print(): inputs that several passes read, as far as they have room.
  KeptRows worth_keeping() const {
    if (!is_long()) return {};
    std::vector<std::pair<int, size_t>> order;  // those that most passes read first
    for (const auto& [number, passes] : passes_reading_)
      if (passes > 1) order.emplace_back(-passes, number);
    std::ranges::sort(order);
    KeptRows kept;
    int64_t bytes = shared_bytes(block_rows_);
    for (const auto& [passes, number] : order)
      if (bytes + kept_bytes(number) <= kMostShared) {
        bytes += kept_bytes(number);
        kept.insert(number);
      }
    return kept;
  }

  PrintedKernel print() {
    int passes = 1;
    for (const int level : body_.levels) passes = std::max(passes, level + 1);
    for (int pass = 0; pass < passes; ++pass) {
      print_row_values(pass);
      print_picks(pass);
      print_pass(pass);
    }
    add_row_outputs();
    finish();
    std::vector<KernelText::RowSum> sums;
    for (const Sum& sum : sums_) sums.push_back({sum.node, sum.output, sum.at});
    text_.add_row_sums(sums, chunks());
    for (const Total& total : totals_)
      text_.add_reduction(*total.node, total.at, rows_, total.output);
    PrintedKernel made = text_.result(
        "rows", fmt::format("{} rows of {}, {} at a time.", rows_, columns_, block_rows_));
    if (has_picks_) made.index_limit = columns_;
    return made;
  }

 private:
  // A sum over all rows, of the whole chunks of it in the workspace.
  struct Sum {
    const Node* node;
    size_t output, at = 0;
    std::string of = {}, rows = {};  // names in shared memory: the sum, and rows on their way to it
  };
  struct Total {
    const Node* node;
    size_t output, at;
  };

  LoopRole role(const Node& node) const { return body_.role(node); }
  const Node* node_of(size_t output) const { return body_.graph.outputs()[output].value.node; }
  bool is_long() const { return columns_ > kPiece; }
  bool is_aligned() const { return columns_ % 4 == 0; }
  int64_t pieces() const { return ceil_div(columns_, kPiece); }
  int64_t chunks() const { return ceil_div(rows_, kSummedRows); }
  int64_t threads() const {
    return std::max<int64_t>(32, (kGroup * pieces() * block_rows_ + 16) & -32);
  }
  std::string_view index_type() const {
    return body_.domain.elements < int64_t{1} << 31 ? "uint32_t" : "uint64_t";
  }

  // ---- shared memory ----

  int64_t shared_bytes(int64_t rows) const {
    int64_t bytes = 0;
    for (const Sum& sum : sums_)
      bytes += columns_ * static_cast<int64_t>(size_of(sum.node->outputs[0].dtype)) *
               (rows > 1 ? rows + 1 : 1);
    return bytes;
  }

  void choose_rows() {
    block_rows_ = is_long() ? 1 : kMostRows;
    while (block_rows_ > 1 && shared_bytes(block_rows_) > kGoodShared) block_rows_ /= 2;
    if (shared_bytes(block_rows_) > kMostShared)
      throw Refused{fmt::format("sums rows of {} bytes over all rows", shared_bytes(1))};
  }

  void place_sums() {
    int64_t offset = 0;
    // The widest elements first: all are aligned.
    std::vector<Sum*> order;
    for (Sum& sum : sums_) order.push_back(&sum);
    std::stable_sort(order.begin(), order.end(), [](const Sum* a, const Sum* b) {
      return size_of(a->node->outputs[0].dtype) > size_of(b->node->outputs[0].dtype);
    });
    for (Sum* sum : order) {
      const DType dtype = sum->node->outputs[0].dtype;
      const std::string_view type = stored_type(dtype);
      const auto place = [&](std::string name, int64_t rows) {
        setup_.push_back(fmt::format(
            "{0}* const {1} = reinterpret_cast<{0}*>(shared + {2});", type, name, offset));
        offset += rows * columns_ * static_cast<int64_t>(size_of(dtype));
        return name;
      };
      sum->of = place(fmt::format("sum{}", sum->output), 1);
      if (block_rows_ > 1) sum->rows = place(fmt::format("added{}", sum->output), block_rows_);
    }
    shared_ = offset;
  }

  int64_t kept_bytes(size_t input) const {
    const auto element = static_cast<int64_t>(size_of(text_.input_dtype(input)));
    return ceil_div(columns_ * element, 16) * 16 + 16;
  }

  void place_kept_rows() {
    for (const size_t input : kept_) {
      shared_ = ceil_div(shared_, 16) * 16;
      const std::string in = text_.input(input);
      body_lines_.push_back(
          fmt::format("const auto* const kept{} = keep_row(shared + {}, {} + at, {});",
                      input,
                      shared_,
                      in,
                      columns_));
      shared_ += kept_bytes(input);
    }
    if (!kept_.empty()) body_lines_.emplace_back("__syncthreads();");
  }

  // ---- values of the row ----

  // An input with one element for each row.
  std::string row_leaf(const Node& node) {
    const auto read = [&](const Node& from, std::string_view at) {
      const size_t number = input_number(from);
      return row_code_.name(node, fmt::format("value_of({}[{}])", text_.input(number), at));
    };
    if (node.is<Input>()) return read(node, "row");
    if (node.is<Broadcast>()) return read(*node.inputs[0].node, "0");
    return {};
  }

  void flush_row_code() {
    body_lines_.insert(body_lines_.end(), row_code_.lines.begin(), row_code_.lines.end());
    row_code_.lines.clear();
  }

  void print_row_values(int level) {
    for (const auto& node : body_.graph.nodes())
      if (role(*node) == LoopRole::kRow && body_.level(*node) == level) row_code_.value(*node);
    flush_row_code();
  }

  void print_picks(int pass) {
    bool found = false;
    for (const auto& node : body_.graph.nodes()) {
      if (!node->is<Pick>() || body_.level(*node) != pass + 1) continue;
      found = true;
      const std::string index = row_code_.value(*node->inputs[1].node);
      flush_row_code();
      const std::string in = text_.input(input_number(*node->inputs[0].node));
      const std::string is_in = fmt::format("{0} >= 0 && {0} < {1}", index, columns_);
      body_lines_.push_back(
          fmt::format("if (lane == 0 && begin < end && !({})) report({}, row, {});",
                      is_in,
                      text_.fault(),
                      index));
      row_code_.name(*node, fmt::format("value_of({}[at + ({} ? {} : 0)])", in, is_in, index));
      flush_row_code();
    }
    // Before a result is written over what they read.
    if (found) body_lines_.push_back(is_long() ? "__syncthreads();" : "__syncwarp();");
    has_picks_ = has_picks_ || found;
  }

  // ---- a pass over the elements ----

  struct Pass {
    Statements code;
    std::vector<std::string> before = {}, loads = {}, ends = {}, stores = {}, after = {};
    std::set<size_t> read = {};
  };

  std::string left() const { return is_aligned() ? "" : ", end - c"; }
  std::string_view some() const { return is_aligned() ? "" : "_some"; }

  std::string leaf(const Node& node, Pass& pass) {
    const DType dtype = node.outputs[0].dtype;
    if (role(node) == LoopRole::kRow) return row_value(node, pass);
    if (node.is<Input>()) return element_of(input_number(node), dtype, pass);
    if (node.is<OneHot>()) return mark(node, pass);
    if (!node.is<Broadcast>()) return {};
    const Node& from = *node.inputs[0].node;
    if (role(from) == LoopRole::kRow) return row_value(from, pass);
    const IndexMap map(from.outputs[0].shape, node.outputs[0].shape);
    if (map.is_same()) return element_of(input_number(from), dtype, pass);
    if (!map.keeps_pieces(columns_))
      throw Refused{"reads a broadcast input that changes within a row"};
    const std::string in = text_.input(input_number(from)), base = map.text("at", columns_);
    if (map.axes[0].stride == 0) {
      const std::string name = fmt::format("b{}", node.id);
      if (declared_.insert(node.id).second)
        pass.before.push_back(
            fmt::format("const {} {} = value_of({}[{}]);", value_type(dtype), name, in, base));
      return name;
    }
    pass.loads.push_back(fmt::format(
        "const auto p{}b = load{}<4>({} + ({}) + c{});", node.id, some(), in, base, left()));
    return pass.code.name(node, fmt::format("value_of(p{}b.at[k])", node.id));
  }

  // Computed before the pass, where it is not known yet.
  std::string row_value(const Node& node, Pass& pass) {
    const std::string name = row_code_.value(node);
    pass.before.insert(pass.before.end(), row_code_.lines.begin(), row_code_.lines.end());
    row_code_.lines.clear();
    return name;
  }

  std::string element_of(size_t number, DType dtype, Pass& pass) {
    const std::string name = fmt::format("x{}", number);
    if (!pass.read.insert(number).second) return name;
    ++passes_reading_[number];
    const std::string row =
        kept_.contains(number) ? fmt::format("kept{}", number) : text_.input(number) + " + at";
    pass.loads.push_back(
        fmt::format("const auto p{} = load{}<4>({} + c{});", number, some(), row, left()));
    pass.code.lines.push_back(
        fmt::format("const {} {} = value_of(p{}.at[k]);", value_type(dtype), name, number));
    return name;
  }

  std::string mark(const Node& node, Pass& pass) {
    const std::string column = row_value(base_of(*node.inputs[0].node), pass);
    const DType dtype = node.outputs[0].dtype;
    const auto number = [&](int value) {
      return is_float(dtype) ? number_text(dtype, static_cast<double>(value))
                             : number_text(dtype, static_cast<int64_t>(value));
    };
    return pass.code.name(
        node,
        fmt::format("static_cast<int64_t>(c + k) == {} ? {} : {}", column, number(1), number(0)));
  }

  std::string guarded(std::string statement) const {
    return is_aligned() ? statement : "if (c + k < end) " + statement;
  }

  void print_pass(int level) {
    Pass pass{Statements([&](const Node& node) { return leaf(node, pass); })};
    for (const auto& node : body_.graph.nodes())
      if (role(*node) == LoopRole::kRow && is_loop_reduction(*node) &&
          body_.level(*node) == level + 1)
        add_reduction(*node, pass);
    for (Sum& sum : sums_)
      if (body_.level(base_of(*sum.node->inputs[0].node)) == level) add_to_sum(sum, pass);
    for (size_t i = 0; i < body_.graph.outputs().size(); ++i)
      if (is_domain(role(*node_of(i))) && body_.level(*node_of(i)) == level) add_store(i, pass);
    text_.needs_functions = text_.needs_functions || pass.code.needs_functions;
    if (pass.ends.empty()) return;
    Lines lines(0);
    lines.add_all(pass.before);
    // Left to itself the compiler unrolls all of it; a block of a long row has few registers.
    lines.line("#pragma unroll {}", is_long() ? 1 : 2);
    lines.open("for ({} c = begin + lane * 4; c < end; c += 64)", index_type());
    lines.add_all(pass.loads);
    lines.add("#pragma unroll");
    lines.open("for (int k = 0; k < 4; ++k)");
    lines.add_all(pass.code.lines);
    lines.add_all(pass.ends);
    lines.close();
    lines.add_all(pass.stores);
    lines.close();
    lines.add_all(pass.after);
    body_lines_.push_back(lines.text());
  }

  void add_reduction(const Node& node, Pass& pass) {
    const std::string value = pass.code.value(*node.inputs[0].node);
    const DType dtype = node.outputs[0].dtype;
    const std::string_view type = stored_type(dtype), by = combining(node);
    const std::string sum = fmt::format("r{}", node.id);
    pass.before.push_back(fmt::format("Reduced<{}, {}> {};", by, type, sum));
    pass.ends.push_back(guarded(fmt::format("{}.add(k, {});", sum, value)));
    std::string result = sum + ".result()";
    if (is_long()) {
      setup_.push_back(fmt::format("__shared__ {} pieces{}[{}];", type, node.id, pieces()));
      result = fmt::format("over_pieces<{}>({}, pieces{}, {})", by, result, node.id, pieces());
    }
    if (node.is<ReduceMean>())
      result += " / " + number_text(dtype, static_cast<double>(divisor_of(node)));
    const std::string name = fmt::format("{}_{}", node.op->name(), node.id);
    pass.after.push_back(fmt::format("const {} {} = {};", type, name, result));
    row_code_.know(node, name);
  }

  void add_to_sum(Sum& sum, Pass& pass) {
    const std::string value = pass.code.value(*sum.node->inputs[0].node);
    if (block_rows_ > 1)
      pass.ends.push_back(
          guarded(fmt::format("{}[group * {} + c + k] = {};", sum.rows, columns_, value)));
    else
      pass.ends.push_back(guarded(fmt::format("{0}[c + k] = {0}[c + k] + {1};", sum.of, value)));
  }

  void add_store(size_t index, Pass& pass) {
    const std::string value = pass.code.value(*node_of(index)), out = text_.output(index);
    pass.loads.push_back(
        fmt::format("Pack<{}, 4> q{};", stored_type(node_of(index)->outputs[0].dtype), index));
    pass.ends.push_back(fmt::format("set(q{}.at[k], {});", index, value));
    pass.stores.push_back(
        fmt::format("store{}<4>({} + at + c, q{}{});", some(), out, index, left()));
  }

  // ---- results of rows, and the loop over them ----

  void add_row_outputs() {
    for (size_t i = 0; i < body_.graph.outputs().size(); ++i) {
      const Node& node = *node_of(i);
      if (role(node) == LoopRole::kRow)
        row_outputs_.push_back(
            fmt::format("set({}[row], {});", text_.output(i), row_code_.value(node)));
      if (role(node) != LoopRole::kTotal) continue;
      const DType dtype = node.outputs[0].dtype;
      totals_.push_back({&node, i, text_.take(static_cast<size_t>(rows_) * size_of(dtype))});
      row_outputs_.push_back(fmt::format(
          "{}[row] = {};",
          text_.workspace(totals_.back().at, stored_type(dtype), fmt::format("values{}", i)),
          row_code_.value(*node.inputs[0].node)));
    }
    flush_row_code();
    text_.needs_functions = text_.needs_functions || row_code_.needs_functions;
  }

  // What is done to the rows from `first` on.
  void print_rows(Lines& lines) {
    const std::string_view type = index_type();
    const bool is_whole = rows_ % block_rows_ == 0;
    if (is_whole)
      lines.line("const {} row = first{};", type, block_rows_ == 1 ? "" : " + group");
    else
      lines.line("const {0} mine = first + group, row = mine < {1} ? mine : {1} - 1;", type, rows_);
    lines.line("const {} at = row * {};", type, columns_);
    // No column of a row that is not there.
    if (is_long()) {
      lines.line("const {} begin = piece * {};", type, kPiece);
      lines.line("const {0} end = begin + {1} < {2} ? begin + {1} : begin < {2} ? {2} : begin;",
                 type,
                 kPiece,
                 columns_);
    } else {
      // A warp has room for two rows: of one alone the second group has none.
      const std::string is_there = block_rows_ == 1 ? "group == 0 ? "
                                   : is_whole       ? ""
                                                    : fmt::format("mine < {} ? ", rows_);
      lines.line("const {} begin = 0, end = {}{}{};",
                 type,
                 is_there,
                 columns_,
                 is_there.empty() ? "" : " : 0");
    }
    lines.add_all(body_lines_);
    if (!row_outputs_.empty()) {
      lines.open("if (lane == 0 && begin == 0 && begin < end)");
      lines.add_all(row_outputs_);
      lines.close();
    }
  }

  void print_adding(Lines& lines) {
    if (block_rows_ == 1) return;
    lines.add("__syncthreads();");
    lines.line("const uint32_t there = {0} - first < {1} ? {0} - first : {1};", rows_, block_rows_);
    lines.open("for (uint32_t c = threadIdx.x; c < {}; c += {})", columns_, threads());
    for (const Sum& sum : sums_) {
      lines.line("auto of{} = {}[c];", sum.output, sum.of);
      lines.line("for (uint32_t r = 0; r < there; ++r) of{0} = of{0} + {1}[r * {2} + c];",
                 sum.output,
                 sum.rows,
                 columns_);
      lines.line("{}[c] = of{};", sum.of, sum.output);
    }
    lines.close();
  }

  void print_chunks(Lines& lines) {
    const std::string_view type = index_type();
    lines.open("for ({0} chunk = blockIdx.x; chunk < {1}; chunk += gridDim.x)", type, chunks());
    lines.open("for (uint32_t c = threadIdx.x; c < {}; c += {})", columns_, threads());
    for (const Sum& sum : sums_) lines.line("{}[c] = 0;", sum.of);
    lines.close();
    lines.add("__syncthreads();");
    lines.line("const {0} limit = chunk + 1 < {1} ? (chunk + 1) * {2} : {3};",
               type,
               chunks(),
               kSummedRows,
               rows_);
    lines.open(
        "for ({} first = chunk * {}; first < limit; first += {})", type, kSummedRows, block_rows_);
    print_rows(lines);
    print_adding(lines);
    if (block_rows_ > 1 || is_long()) lines.add("__syncthreads();");
    lines.close();
    lines.add("__syncthreads();");
    lines.open("for (uint32_t c = threadIdx.x; c < {}; c += {})", columns_, threads());
    for (Sum& sum : sums_) {
      const DType dtype = sum.node->outputs[0].dtype;
      const std::string_view sum_type = stored_type(dtype);
      if (chunks() > 1) {
        sum.at = text_.take(static_cast<size_t>(chunks() * columns_) * size_of(dtype));
        lines.line("{}[chunk * {} + c] = {}[c];",
                   text_.workspace(sum.at, sum_type, fmt::format("part{}", sum.output)),
                   columns_,
                   sum.of);
      } else {
        lines.line("{}[c] = {}[c] / {};",
                   text_.output(sum.output),
                   sum.of,
                   number_text(dtype, static_cast<double>(divisor_of(*sum.node))));
      }
    }
    lines.close();
    lines.add("__syncthreads();");
    lines.close();
  }

  void finish() {
    Lines& lines = text_.lines;
    if (shared_ > 0) lines.add("RIDGE_DYNAMIC_SHARED(shared);");
    lines.add_all(setup_);
    lines.line("const uint32_t lane = threadIdx.x % {};", kGroup);
    if (is_long())
      lines.line("const uint32_t piece = threadIdx.x / {}, group = 0;", kGroup);
    else
      lines.line("const uint32_t group = threadIdx.x / {};", kGroup);
    if (!sums_.empty()) {
      print_chunks(lines);
      return text_.finish("", chunks(), threads(), static_cast<size_t>(shared_));
    }
    lines.open("for ({0} first = blockIdx.x * {1}; first < {2}; first += gridDim.x * {1})",
               index_type(),
               block_rows_,
               rows_);
    print_rows(lines);
    if (is_long()) lines.add("__syncthreads();");
    lines.close();
    text_.finish("", ceil_div(rows_, block_rows_), threads(), static_cast<size_t>(shared_));
  }

  const FusedBody& body_;
  int64_t rows_, columns_;
  int64_t block_rows_ = 1;
  int64_t shared_ = 0;  // bytes
  KeptRows kept_;
  std::map<size_t, int> passes_reading_;  // an input
  KernelText text_;
  Statements row_code_;  // of one row
  bool has_picks_ = false;
  std::set<int> declared_;  // broadcasts of one element a row
  std::vector<std::string> setup_, body_lines_, row_outputs_;
  std::vector<Sum> sums_;
  std::vector<Total> totals_;
};

}  // namespace

// What several passes read is known when all are printed.
PrintedKernel print_rows(const FusedBody& body) {
  RowPrinter plain(body);
  PrintedKernel made = plain.print();
  KeptRows kept = plain.worth_keeping();
  return kept.empty() ? made : RowPrinter(body, std::move(kept)).print();
}

}  // namespace ridge::cuda
