// Bodies over rows: a group of sixteen threads for each piece of 2048 columns, so that a block has
// several short rows or one long one. A pass over the elements ends at each reduction of the row;
// what comes between is computed by every thread of the row. Passes read their inputs again, from
// the caches, and compute again what several of them need. What several passes read of a long row
// is kept in shared memory where it has room: rows of 50257 of all blocks are more than the caches
// hold. A row of at most 2048 columns is held in registers where it has room there: by a warp, in
// packs of two, which leaves each sum its tree.
//
// All threads of the block go over a long row pack by pack if no order of sums is asked for, as no
// row is reduced or the functions have other bits than the CPU's anyway: each keeps what it reads
// for itself, and packs are aligned wherever the row begins. A maximum and the sum of
// exponentials around it are then found in one pass.
#include <algorithm>
#include <utility>

#include "ridge/backend/cuda/print/row_pass.h"
#include "ridge/backend/cuda/print/row_walk.h"
#include "ridge/graph/ops/gather.h"

namespace ridge::cuda {
namespace {

class RowPrinter {
 public:
  RowPrinter(const FusedBody& body,
             Functions functions,
             const DeviceLimits& limits,
             const KeptRows& kept = {})
      : kernel_(body, functions, limits, kept), layout_(kernel_.layout) {
    if (!kernel_.levels.below_zero.empty()) kernel_.text.include("approx.h");
    kernel_.sums.place(layout_.block_rows, kernel_.setup);
    place_kept_rows();
  }

  PrintedKernel print() {
    int passes = 1;
    for (const int level : kernel_.levels.of) passes = std::max(passes, level + 1);
    for (int pass = 0; pass < passes; ++pass) {
      print_row_values(pass);
      print_picks(pass);
      std::string text = print_row_pass(kernel_, pass);
      if (!text.empty()) body_lines_.push_back(std::move(text));
    }
    add_row_outputs();
    finish();
    kernel_.sums.add_stages(kernel_.text);
    for (const Total& total : totals_)
      kernel_.text.add_reduction(*total.node, total.at, layout_.rows, total.output);
    PrintedKernel made = kernel_.text.result(
        "rows",
        fmt::format(
            "{} rows of {}, {} at a time.", layout_.rows, layout_.columns, layout_.block_rows));
    if (pick_limit_ != 0) made.index_limit = pick_limit_;
    return made;
  }

  /// After print(): inputs that several passes read, as far as they have room.
  KeptRows worth_keeping() const { return layout_.worth_keeping(kernel_.passes_reading); }

 private:
  struct Total {
    const Node* node;
    size_t output, at;
  };

  void place_kept_rows() {
    for (const auto& [input, kept] : layout_.kept)
      if (layout_.is_spread)
        kernel_.setup.push_back(
            kept_text(stored_type(kernel_.text.input_dtype(input)), input, kept.at));
      else
        body_lines_.push_back(
            keep_row_text(kernel_.text.input(input), input, kept.at, layout_.columns));
    if (!layout_.kept.empty() && !layout_.is_spread) body_lines_.emplace_back("__syncthreads();");
  }

  void print_row_values(int level) {
    for (const auto& node : kernel_.body.graph.nodes())
      if (kernel_.role(*node) == LoopRole::kRow && kernel_.levels.level(*node) == level)
        kernel_.row_code.value(*node);
    kernel_.move_row_code(body_lines_);
  }

  void print_picks(int pass) {
    bool found = false;
    for (const auto& node : kernel_.body.graph.nodes()) {
      if (!node->is<Pick>() || kernel_.levels.level(*node) != pass + 1) continue;
      found = true;
      const std::string index = kernel_.row_code.value(*node->inputs[1].node);
      kernel_.move_row_code(body_lines_);
      const std::string in = kernel_.text.input(input_number(*node->inputs[0].node));
      const int64_t limit = node->op_as<Pick>().columns_of(layout_.columns);
      pick_limit_ = pick_limit_ == 0 ? limit : std::min(pick_limit_, limit);
      const std::string is_in = fmt::format("{0} >= 0 && {0} < {1}", index, limit);
      body_lines_.push_back(
          fmt::format("if ({} && !({})) report({}, row, {});",
                      layout_.is_spread ? "threadIdx.x == 0" : "lane == 0 && begin < end",
                      is_in,
                      kernel_.text.fault(),
                      index));
      kernel_.row_code.name(*node,
                            fmt::format("value_of({}[at + ({} ? {} : 0)])", in, is_in, index));
      kernel_.move_row_code(body_lines_);
    }
    // All picks are read before a result is written over them.
    if (found) body_lines_.push_back(layout_.is_long ? "__syncthreads();" : "__syncwarp();");
  }

  void add_row_outputs() {
    for (size_t i = 0; i < kernel_.body.graph.outputs().size(); ++i) {
      const Node& node = kernel_.node_of(i);
      if (kernel_.role(node) == LoopRole::kRow)
        row_outputs_.push_back(
            fmt::format("set({}[row], {});", kernel_.text.output(i), kernel_.row_code.value(node)));
      if (kernel_.role(node) != LoopRole::kTotal) continue;
      const DType dtype = node.outputs[0].dtype;
      totals_.push_back(
          {&node, i, kernel_.text.take(static_cast<size_t>(layout_.rows) * size_of(dtype))});
      row_outputs_.push_back(fmt::format(
          "{}[row] = {};",
          kernel_.text.workspace(totals_.back().at, stored_type(dtype), fmt::format("values{}", i)),
          kernel_.row_code.value(*node.inputs[0].node)));
    }
    kernel_.move_row_code(body_lines_);
    kernel_.text.include_functions(kernel_.row_code);
  }

  // Writes the work on the rows from `first` on.
  void print_rows(Lines& lines) {
    const std::string_view type = layout_.index_type();
    const bool is_whole = layout_.rows % layout_.block_rows == 0;
    if (is_whole)
      lines.line("const {} row = first{};", type, layout_.block_rows == 1 ? "" : " + group");
    else
      lines.line(
          "const {0} mine = first + group, row = mine < {1} ? mine : {1} - 1;", type, layout_.rows);
    lines.line("const {} at = row * {};", type, layout_.columns);
    if (layout_.is_long)
      lines.line("const int32_t head = {};",
                 layout_.is_aligned ? "0" : "static_cast<int32_t>(-at & 3u)");
    for (const size_t input : kernel_.held) {
      const std::string_view of = stored_type(kernel_.text.input_dtype(input));
      lines.line("Pack<{}, 2> h{}[{}];", of, input, layout_.columns / kHeldStep);
      open_packs(lines, Walk::kHeld, type, 0, layout_.columns);
      lines.line("h{}[j] = load<2>({} + at + c);", input, kernel_.text.input(input));
      lines.close();
    }
    // A row that is not there has no columns. Threads that are spread have no place in a tree, and
    // those of a held row one each.
    if (!layout_.is_spread && !layout_.is_held)
      print_bounds(lines,
                   type,
                   layout_.columns,
                   layout_.block_rows == 1 ? "group == 0"
                   : is_whole              ? ""
                                           : fmt::format("mine < {}", layout_.rows));
    lines.add_all(body_lines_);
    if (!row_outputs_.empty()) {
      lines.open("if ({})",
                 layout_.is_spread ? "threadIdx.x == 0"
                 : layout_.is_held ? "lane == 0"
                                   : "lane == 0 && begin == 0 && begin < end");
      lines.add_all(row_outputs_);
      lines.close();
    }
  }

  void print_chunks(Lines& lines) {
    const std::string_view type = layout_.index_type();
    lines.open("for ({0} chunk = blockIdx.x; chunk < {1}; chunk += gridDim.x)",
               type,
               kernel_.sums.chunks());
    kernel_.sums.print_clearing(lines, layout_.threads());
    lines.add("__syncthreads();");
    lines.line("const {0} limit = chunk + 1 < {1} ? (chunk + 1) * {2} : {3};",
               type,
               kernel_.sums.chunks(),
               kSummedRows,
               layout_.rows);
    lines.open("for ({} first = chunk * {}; first < limit; first += {})",
               type,
               kSummedRows,
               layout_.block_rows);
    print_rows(lines);
    kernel_.sums.print_adding(lines, layout_.threads());
    // A thread that adds to columns of its own has nothing to wait for.
    const bool is_alone = layout_.is_spread && layout_.is_aligned && layout_.passes_ended == 0;
    if (layout_.block_rows > 1 || (layout_.is_long && !is_alone)) lines.add("__syncthreads();");
    lines.close();
    lines.add("__syncthreads();");
    kernel_.sums.print_results(kernel_.text, layout_.threads());
    lines.add("__syncthreads();");
    lines.close();
  }

  void finish() {
    Lines& lines = kernel_.text.lines;
    if (layout_.shared_bytes > 0) lines.add("RIDGE_DYNAMIC_SHARED(shared);");
    lines.add_all(kernel_.setup);
    if (!layout_.is_spread)
      lines.line("const uint32_t lane = threadIdx.x % {0}, {1} = threadIdx.x / {0}{2};",
                 layout_.is_held ? 32 : kGroup,
                 layout_.is_long ? "piece" : "group",
                 layout_.is_long ? ", group = 0" : "");
    // One block with a long row loads while another computes: 448 threads have 72 registers each.
    const int64_t bytes =
        layout_.shared_bytes + static_cast<int64_t>(kernel_.text.static_shared_bytes);
    if (bytes > (48 << 10) && layout_.fits_twice(bytes) && layout_.threads() > 256 &&
        layout_.threads() <= 448)
      kernel_.text.blocks_at_once = 2;
    if (!kernel_.sums.empty()) {
      print_chunks(lines);
      return kernel_.text.finish(
          "", kernel_.sums.chunks(), layout_.threads(), static_cast<size_t>(layout_.shared_bytes));
    }
    lines.open("for ({0} first = blockIdx.x * {1}; first < {2}; first += gridDim.x * {1})",
               layout_.index_type(),
               layout_.block_rows,
               layout_.rows);
    print_rows(lines);
    if (layout_.is_long) lines.add("__syncthreads();");
    lines.close();
    kernel_.text.finish("",
                        ceil_div(layout_.rows, layout_.block_rows),
                        layout_.threads(),
                        static_cast<size_t>(layout_.shared_bytes));
  }

  RowKernel kernel_;
  const RowLayout& layout_;
  int64_t pick_limit_ = 0;  // above the indices of picks; 0: there are none
  std::vector<std::string> body_lines_, row_outputs_;
  std::vector<Total> totals_;
};

}  // namespace

// Which inputs several passes read is known when all passes are printed.
PrintedKernel print_rows(const FusedBody& body, Functions functions, const DeviceLimits& limits) {
  RowPrinter plain(body, functions, limits);
  PrintedKernel made = plain.print();
  const KeptRows kept = plain.worth_keeping();
  return kept.empty() ? made : RowPrinter(body, functions, limits, kept).print();
}

}  // namespace ridge::cuda
