// Bodies over rows: a group of sixteen threads for each piece of 2048 columns, so that a block has
// several short rows or one long one. A pass over the elements ends at each reduction of the row;
// what comes between is computed by every thread of the row. Passes read their inputs again, from
// the caches, and compute again what several of them need. What several passes read of a long row
// is kept in shared memory where it has room: rows of 50257 of all blocks are more than the caches
// hold. A row of at most 2048 columns is held in registers where it has room there: by a warp, in
// packs of two, which leaves each sum its tree.
//
// Where no order of sums is asked for, as no row is reduced or the functions have other bits than
// the CPU's anyway, all threads of the block go over a long row pack by pack: each keeps what it
// reads for itself, and packs are aligned wherever the row begins. A maximum and the sum of
// exponentials around it are then found in one pass.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ridge/backend/cuda/print/index_map.h"
#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/row_column_sums.h"
#include "ridge/backend/cuda/print/row_levels.h"
#include "ridge/backend/cuda/print/row_walk.h"
#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

constexpr int64_t kMostRows = 16;  // of a block

// Inputs whose rows are kept in shared memory, by number; with how many elements.
using KeptRows = std::map<size_t, int64_t>;

class RowPrinter {
 public:
  RowPrinter(const FusedBody& body,
             Functions functions,
             const DeviceLimits& limits,
             KeptRows kept = {})
      : body_(body),
        functions_(functions),
        limits_(limits),
        levels_(row_levels(body, functions == Functions::kApprox)),
        sums_(body),
        rows_(body.domain.rows()),
        columns_(body.domain.columns),
        kept_(std::move(kept)),
        text_(body),
        row_code_([this](const Node& node) { return row_leaf(node); }, functions) {
    for (const auto& node : body_.graph.nodes()) passes_ended_ += ends_pass(*node) ? 1 : 0;
    is_spread_ = is_long() && (functions == Functions::kApprox || passes_ended_ == 0);
    is_held_ = functions == Functions::kOfCpu && (passes_ended_ > 0 || !sums_.empty()) &&
               can_be_held(body) && sums_.keep_in_registers(kHeldRows, limits_.shared_of_blocks(2));
    if (!levels_.below_zero.empty()) text_.include("approx.h");
    choose_rows();
    sums_.place(block_rows_, setup_);
    shared_ = sums_.shared_bytes(block_rows_);
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
    int64_t bytes = sums_.shared_bytes(block_rows_);
    for (const auto& [passes, number] : order) {
      int64_t elements = columns_;
      // A row without room for all of it is kept in part: each thread knows which packs it keeps.
      if (is_spread_)
        elements = std::min(columns_ + 8, (most_shared() - bytes) / element_bytes(number) / 8 * 8);
      if (elements <= 0 || bytes + kept_bytes(number, elements) > most_shared()) continue;
      bytes += kept_bytes(number, elements);
      kept.emplace(number, elements);
    }
    return kept;
  }

  PrintedKernel print() {
    int passes = 1;
    for (const int level : levels_.of) passes = std::max(passes, level + 1);
    for (int pass = 0; pass < passes; ++pass) {
      print_row_values(pass);
      print_picks(pass);
      print_pass(pass);
    }
    add_row_outputs();
    finish();
    sums_.add_stages(text_);
    for (const Total& total : totals_)
      text_.add_reduction(*total.node, total.at, rows_, total.output);
    PrintedKernel made = text_.result(
        "rows", fmt::format("{} rows of {}, {} at a time.", rows_, columns_, block_rows_));
    if (pick_limit_ != 0) made.index_limit = pick_limit_;
    return made;
  }

 private:
  using Sum = RowColumnSums::Sum;
  struct Total {
    const Node* node;
    size_t output, at;
  };

  LoopRole role(const Node& node) const { return body_.role(node); }
  const Node* node_of(size_t output) const { return body_.graph.outputs()[output].value.node; }
  bool is_long() const { return columns_ > kPiece; }
  bool is_aligned() const { return columns_ % 4 == 0; }
  bool ends_pass(const Node& node) const {
    return role(node) == LoopRole::kRow && (is_loop_reduction(node) || node.is<Pick>());
  }
  // A long row is shared by groups of sixteen threads.
  int64_t pieces() const { return is_spread_ ? threads() / kGroup : ceil_div(columns_, kPiece); }
  int64_t threads() const {
    if (is_spread_) return spread_threads();
    if (is_held_) return 32 * block_rows_;
    return std::max<int64_t>(32, (kGroup * pieces() * block_rows_ + 16) & -32);
  }
  // Some packs for each thread; where a row takes all of the shared memory, all threads there are.
  int64_t spread_threads() const {
    int64_t kept = 0;
    for (const auto& [number, elements] : kept_) kept += kept_bytes(number, elements);
    if (kept > most_shared() * 3 / 4) return 1024;
    return columns_ > 256 * 16 ? 512 : columns_ > 128 * 16 ? 256 : 128;
  }
  std::string_view index_type() const {
    return body_.domain.elements < int64_t{1} << 31 ? "uint32_t" : "uint64_t";
  }

  // ---- shared memory ----

  // Dynamic, of a block: what the pieces of each reduction leave, of which there are 64 at most, of
  // one number of f64 or two of f32.
  int64_t most_shared() const { return limits_.shared_per_block - passes_ended_ * 64 * 8; }

  // A second block shall have room too.
  void choose_rows() {
    block_rows_ = is_long() ? 1 : is_held_ ? kHeldRows : kMostRows;
    while (block_rows_ > 1 && sums_.shared_bytes(block_rows_) > limits_.shared_of_blocks(2))
      block_rows_ /= 2;
    if (sums_.shared_bytes(block_rows_) > most_shared())
      throw Refused{fmt::format("sums rows of {} bytes over all rows", sums_.shared_bytes(1))};
  }

  int64_t element_bytes(size_t input) const {
    return static_cast<int64_t>(size_of(text_.input_dtype(input)));
  }
  int64_t kept_bytes(size_t input, int64_t elements) const {
    return ceil_div(elements * element_bytes(input), 16) * 16 + (is_spread_ ? 0 : 16);
  }

  void place_kept_rows() {
    for (const auto& [input, elements] : kept_) {
      shared_ = ceil_div(shared_, 16) * 16;
      if (is_spread_)
        setup_.push_back(kept_text(stored_type(text_.input_dtype(input)), input, shared_));
      else
        body_lines_.push_back(keep_row_text(text_.input(input), input, shared_, columns_));
      shared_ += kept_bytes(input, elements);
    }
    if (!kept_.empty() && !is_spread_) body_lines_.emplace_back("__syncthreads();");
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
      if (role(*node) == LoopRole::kRow && levels_.level(*node) == level) row_code_.value(*node);
    flush_row_code();
  }

  void print_picks(int pass) {
    bool found = false;
    for (const auto& node : body_.graph.nodes()) {
      if (!node->is<Pick>() || levels_.level(*node) != pass + 1) continue;
      found = true;
      const std::string index = row_code_.value(*node->inputs[1].node);
      flush_row_code();
      const std::string in = text_.input(input_number(*node->inputs[0].node));
      const int64_t limit = node->op_as<Pick>().columns_of(columns_);
      pick_limit_ = pick_limit_ == 0 ? limit : std::min(pick_limit_, limit);
      const std::string is_in = fmt::format("{0} >= 0 && {0} < {1}", index, limit);
      body_lines_.push_back(
          fmt::format("if ({} && !({})) report({}, row, {});",
                      is_spread_ ? "threadIdx.x == 0" : "lane == 0 && begin < end",
                      is_in,
                      text_.fault(),
                      index));
      row_code_.name(*node, fmt::format("value_of({}[at + ({} ? {} : 0)])", in, is_in, index));
      flush_row_code();
    }
    // Before a result is written over what they read.
    if (found) body_lines_.push_back(is_long() ? "__syncthreads();" : "__syncwarp();");
  }

  // ---- a pass over the elements ----

  Walk walk_of(int level) const {
    const auto reduces = [&](const auto& node) {
      return role(*node) == LoopRole::kRow && is_loop_reduction(*node) &&
             levels_.level(*node) == level + 1;
    };
    if (is_held_) return Walk::kHeld;
    if (is_spread_ || (is_long() && std::ranges::none_of(body_.graph.nodes(), reduces)))
      return Walk::kSpread;
    return is_aligned() ? Walk::kInOrder : Walk::kUnaligned;
  }

  struct Pass {
    Statements code;
    Walk walk;
    std::vector<std::string> before = {}, loads = {}, ends = {}, stores = {}, after = {};
    std::set<size_t> read = {};
  };

  std::string leaf(const Node& node, Pass& pass) {
    const DType dtype = node.outputs[0].dtype;
    if (role(node) == LoopRole::kRow) return row_value(node, pass);
    if (node.is<Input>()) return element_of(input_number(node), dtype, pass);
    if (node.is<OneHot>()) return mark(node, pass);
    if (levels_.below_zero.contains(&node)) {
      const std::string below = pass.code.value(*node.inputs[0].node);
      return pass.code.name(node, fmt::format("approx::exp_below_zero({})", below));
    }
    if (node.is<MaskColumns>())
      return pass.code.name(node, masked_text(node, pass.code.value(*node.inputs[0].node)));
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
    const std::string row = fmt::format("{} + ({})", in, base);
    // What is no row of the domain is not aligned where its packs are.
    const bool is_apart = pass.walk == Walk::kSpread && !is_aligned();
    pass.loads.push_back(fmt::format("const auto p{}b = {};",
                                     node.id,
                                     is_apart
                                         ? fmt::format("EdgePack{{{}}}.load({}, c)", columns_, row)
                                         : load_text(pass.walk, row)));
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
    const bool is_first = ++passes_reading_[number] == 1;
    if (is_held_) {
      if (is_first) held_.push_back(number);
      pass.code.lines.push_back(
          fmt::format("const {} {} = value_of(h{}[j].at[k]);", value_type(dtype), name, number));
      return name;
    }
    const auto kept = kept_.find(number);
    const std::string row = kept != kept_.end() && !is_spread_ ? fmt::format("kept{}", number)
                                                               : text_.input(number) + " + at";
    if (kept == kept_.end() || !is_spread_)
      pass.loads.push_back(fmt::format("const auto p{} = {};", number, load_text(pass.walk, row)));
    else
      add_kept_load(pass.loads, pass.walk, number, row, is_first, columns_, kept->second);
    pass.code.lines.push_back(
        fmt::format("const {} {} = value_of(p{}.at[k]);", value_type(dtype), name, number));
    return name;
  }

  std::string mark(const Node& node, Pass& pass) {
    const std::string column = row_value(behind_reshapes(*node.inputs[0].node), pass);
    const std::string marked = fmt::format("marked{}", node.id);
    if (declared_.insert(node.id).second)
      pass.before.push_back(
          fmt::format("const int32_t {0} = {1} >= 0 && {1} < {2} ? static_cast<int32_t>({1}) : -1;",
                      marked,
                      column,
                      columns_));
    return pass.code.name(node, marked_text(node, marked));
  }

  std::string guarded(std::string statement) const {
    return is_aligned() ? statement : "if (packs.has(c + k)) " + statement;
  }

  void print_pass(int level) {
    Pass pass{Statements([&](const Node& node) { return leaf(node, pass); }, functions_),
              walk_of(level)};
    for (const auto& node : body_.graph.nodes())
      if (role(*node) == LoopRole::kRow && is_loop_reduction(*node) &&
          levels_.level(*node) == level + 1)
        add_reduction(*node, pass);
    for (const Sum& sum : sums_.all())
      if (levels_.level(behind_reshapes(*sum.node->inputs[0].node)) == level) add_to_sum(sum, pass);
    for (size_t i = 0; i < body_.graph.outputs().size(); ++i)
      if (is_domain(role(*node_of(i))) && levels_.level(*node_of(i)) == level) add_store(i, pass);
    text_.include_functions(pass.code);
    if (pass.ends.empty()) return;
    Lines lines(0);
    lines.add_all(pass.before);
    // Left to itself the compiler unrolls all of it; a block of a long row has few registers.
    const int unrolled = is_long() ? 1 : 2;
    const bool is_plain = pass.walk == Walk::kInOrder || pass.walk == Walk::kHeld;
    if (is_plain) {
      open_packs(lines, pass.walk, index_type(), unrolled, columns_);
    } else {
      text_.include("packs.h");
      lines.open("const auto pass{} = [&](auto packs, int32_t c)", level);
    }
    lines.add_all(pass.loads);
    lines.add("#pragma unroll");
    lines.open("for (int k = 0; k < {}; ++k)", width_of(pass.walk));
    lines.add_all(pass.code.lines);
    lines.add_all(pass.ends);
    lines.close();
    lines.add_all(pass.stores);
    lines.close(is_plain ? "" : ";");
    if (pass.walk == Walk::kSpread) {
      // Many loads under way at once: nothing else hides how long memory takes. Of what is kept,
      // few registers let another block run.
      const bool is_kept = std::ranges::all_of(
          pass.read, [&](size_t number) { return kept_.contains(number) && level > 0; });
      const int few = functions_ == Functions::kApprox ? 2 : 1;
      print_spread_loop(lines, level, is_kept ? few : 4, columns_, threads());
    }
    if (pass.walk == Walk::kUnaligned) print_unaligned_loop(lines, level, unrolled);
    lines.add_all(pass.after);
    body_lines_.push_back(lines.text());
  }

  void add_reduction(const Node& node, Pass& pass) {
    if (levels_.is_found(node)) return;
    if (levels_.maximum_of.contains(&node)) return add_exponentials(node, pass);
    const std::string value = pass.code.value(*node.inputs[0].node);
    const DType dtype = node.outputs[0].dtype;
    const std::string_view type = stored_type(dtype), by = combining(node);
    const std::string sum = fmt::format("r{}", node.id);
    pass.before.push_back(
        fmt::format("Reduced<{}, {}{}> {};", by, type, is_held_ ? ", 2" : "", sum));
    pass.ends.push_back(guarded(fmt::format("{}.add(k, {});", sum, value)));
    std::string result = sum + ".result()";
    if (is_long()) {
      declare_pieces(type, fmt::format("pieces{}", node.id), size_of(dtype));
      result = fmt::format("over_pieces<{}>({}, pieces{}, {})", by, result, node.id, pieces());
    }
    if (node.is<ReduceMean>())
      result += " / " + number_text(dtype, static_cast<double>(divisor_of(node)));
    const std::string name = fmt::format("{}_{}", node.op->name(), node.id);
    pass.after.push_back(fmt::format("const {} {} = {};", type, name, result));
    row_code_.know(node, name);
  }

  void declare_pieces(std::string_view type, const std::string& name, size_t bytes) {
    setup_.push_back(fmt::format("__shared__ {} {}[{}];", type, name, pieces()));
    text_.static_shared_bytes += static_cast<size_t>(pieces()) * bytes;
  }

  // A sum of exponentials, and the maximum around which they are.
  void add_exponentials(const Node& sum, Pass& pass) {
    const Node& maximum = *levels_.maximum_of.at(&sum);
    const std::string value = pass.code.value(*maximum.inputs[0].node);
    const int id = sum.id;
    pass.before.push_back(fmt::format("approx::Exponentials r{};", id));
    pass.loads.push_back(fmt::format("float v{}[4];", id));
    const std::string guarded_value =
        is_aligned() ? value : fmt::format("packs.has(c + k) ? {} : -__builtin_inff()", value);
    pass.ends.push_back(fmt::format("v{}[k] = {};", id, guarded_value));
    pass.stores.push_back(fmt::format("r{0}.add(v{0});", id));
    if (is_long()) {
      for (const std::string_view name : {"maxima", "pieces"})
        declare_pieces("float", fmt::format("{}{}", name, id), sizeof(float));
      pass.after.push_back(fmt::format("r{0}.combine(maxima{0}, pieces{0}, {1});", id, pieces()));
    } else {
      pass.after.push_back(fmt::format("r{}.combine();", id));
    }
    const auto give = [&](const Node& node, std::string_view what) {
      const std::string name = fmt::format("{}_{}", node.op->name(), node.id);
      pass.after.push_back(fmt::format("const float {} = r{}.{}();", name, id, what));
      row_code_.know(node, name);
    };
    give(maximum, "largest");
    give(sum, "total");
  }

  void add_to_sum(const Sum& sum, Pass& pass) {
    const std::string value = pass.code.value(*sum.node->inputs[0].node);
    if (is_aligned()) return add_packs_to_sum(sum, value, pass);
    if (block_rows_ > 1)
      pass.ends.push_back(
          guarded(fmt::format("{}[group * {} + c + k] = {};", sum.rows, columns_, value)));
    else
      pass.ends.push_back(guarded(fmt::format("{0}[c + k] = {0}[c + k] + {1};", sum.of, value)));
  }

  void add_packs_to_sum(const Sum& sum, const std::string& value, Pass& pass) {
    const size_t id = sum.output;
    const std::string_view type = stored_type(sum.node->outputs[0].dtype);
    if (block_rows_ > 1) {
      const std::string place = fmt::format("{} + group * {} + c", sum.rows, columns_);
      pass.loads.push_back(fmt::format("Pack<{}, {}> s{};", type, width_of(pass.walk), id));
      pass.ends.push_back(fmt::format("s{}.at[k] = {};", id, value));
      pass.stores.push_back(fmt::format("store<{}>({}, s{});", width_of(pass.walk), place, id));
    } else {
      pass.loads.push_back(fmt::format("auto s{} = load<4>({} + c);", id, sum.of));
      pass.ends.push_back(fmt::format("s{0}.at[k] = s{0}.at[k] + {1};", id, value));
      pass.stores.push_back(fmt::format("store<4>({} + c, s{});", sum.of, id));
    }
  }

  void add_store(size_t index, Pass& pass) {
    const std::string value = pass.code.value(*node_of(index)), out = text_.output(index);
    pass.loads.push_back(fmt::format("Pack<{}, {}> q{};",
                                     stored_type(node_of(index)->outputs[0].dtype),
                                     width_of(pass.walk),
                                     index));
    pass.ends.push_back(fmt::format("keep(q{}.at[k], {});", index, value));
    pass.stores.push_back(store_text(pass.walk, out + " + at", fmt::format("q{}", index)));
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
    text_.include_functions(row_code_);
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
    if (is_long())
      lines.line("const int32_t head = {};", is_aligned() ? "0" : "static_cast<int32_t>(-at & 3u)");
    for (const size_t input : held_) {
      const std::string_view of = stored_type(text_.input_dtype(input));
      lines.line("Pack<{}, 2> h{}[{}];", of, input, columns_ / kHeldStep);
      open_packs(lines, Walk::kHeld, type, 0, columns_);
      lines.line("h{}[j] = load<2>({} + at + c);", input, text_.input(input));
      lines.close();
    }
    // No column of a row that is not there.
    if (is_spread_ || is_held_) {
      // Its threads have no place in a tree, or one each.
    } else {
      print_bounds(lines,
                   type,
                   columns_,
                   block_rows_ == 1 ? "group == 0"
                   : is_whole       ? ""
                                    : fmt::format("mine < {}", rows_));
    }
    lines.add_all(body_lines_);
    if (!row_outputs_.empty()) {
      lines.open("if ({})",
                 is_spread_ ? "threadIdx.x == 0"
                 : is_held_ ? "lane == 0"
                            : "lane == 0 && begin == 0 && begin < end");
      lines.add_all(row_outputs_);
      lines.close();
    }
  }

  void print_chunks(Lines& lines) {
    const std::string_view type = index_type();
    lines.open(
        "for ({0} chunk = blockIdx.x; chunk < {1}; chunk += gridDim.x)", type, sums_.chunks());
    sums_.print_clearing(lines, threads());
    lines.add("__syncthreads();");
    lines.line("const {0} limit = chunk + 1 < {1} ? (chunk + 1) * {2} : {3};",
               type,
               sums_.chunks(),
               kSummedRows,
               rows_);
    lines.open(
        "for ({} first = chunk * {}; first < limit; first += {})", type, kSummedRows, block_rows_);
    print_rows(lines);
    sums_.print_adding(lines, threads());
    // Where a thread adds to columns of its own there is nothing to wait for.
    const bool is_alone = is_spread_ && is_aligned() && passes_ended_ == 0;
    if (block_rows_ > 1 || (is_long() && !is_alone)) lines.add("__syncthreads();");
    lines.close();
    lines.add("__syncthreads();");
    sums_.print_results(text_, threads());
    lines.add("__syncthreads();");
    lines.close();
  }

  void finish() {
    Lines& lines = text_.lines;
    if (shared_ > 0) lines.add("RIDGE_DYNAMIC_SHARED(shared);");
    lines.add_all(setup_);
    if (!is_spread_)
      lines.line("const uint32_t lane = threadIdx.x % {0}, {1} = threadIdx.x / {0}{2};",
                 is_held_ ? 32 : kGroup,
                 is_long() ? "piece" : "group",
                 is_long() ? ", group = 0" : "");
    // One block with a long row loads while another computes: 448 threads have 72 registers each.
    const int64_t bytes = shared_ + static_cast<int64_t>(text_.static_shared_bytes);
    if (bytes > (48 << 10) && bytes <= limits_.shared_of_blocks(2) && threads() > 256 &&
        threads() <= 448)
      text_.blocks_at_once = 2;
    if (!sums_.empty()) {
      print_chunks(lines);
      return text_.finish("", sums_.chunks(), threads(), static_cast<size_t>(shared_));
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
  Functions functions_;
  const DeviceLimits& limits_;
  RowLevels levels_;
  RowColumnSums sums_;
  int64_t rows_, columns_;
  bool is_spread_ = false, is_held_ = false;
  int64_t passes_ended_ = 0;  // by reductions of the row and picks
  int64_t block_rows_ = 1;
  int64_t shared_ = 0;  // bytes
  KeptRows kept_;
  std::map<size_t, int> passes_reading_;  // an input
  std::vector<size_t> held_;              // inputs
  KernelText text_;
  Statements row_code_;     // of one row
  int64_t pick_limit_ = 0;  // where there are picks: what their indices are below
  std::set<int> declared_;  // broadcasts of one element a row
  std::vector<std::string> setup_, body_lines_, row_outputs_;
  std::vector<Total> totals_;
};

}  // namespace

// What several passes read is known when all are printed.
PrintedKernel print_rows(const FusedBody& body, Functions functions, const DeviceLimits& limits) {
  RowPrinter plain(body, functions, limits);
  PrintedKernel made = plain.print();
  KeptRows kept = plain.worth_keeping();
  return kept.empty() ? made : RowPrinter(body, functions, limits, std::move(kept)).print();
}

}  // namespace ridge::cuda
