#include "ridge/backend/cuda/print/row_column_sums.h"

#include <algorithm>

#include "ridge/backend/cuda/print/scalar_text.h"

namespace ridge::cuda {
namespace {

int64_t element_bytes(const RowColumnSums::Sum& sum) {
  return static_cast<int64_t>(size_of(sum.node->outputs[0].dtype));
}

}  // namespace

RowColumnSums::RowColumnSums(const FusedBody& body)
    : rows_(body.domain.rows()), columns_(body.domain.columns) {
  for (size_t i = 0; i < body.graph.outputs().size(); ++i) {
    const Node* const node = body.graph.outputs()[i].value.node;
    if (body.role(*node) == LoopRole::kColumns) sums_.push_back({node, i});
  }
}

bool RowColumnSums::keep_in_registers(int64_t rows, int64_t most_bytes) {
  in_registers_ = true;
  in_registers_ = shared_bytes(rows) <= most_bytes;
  return in_registers_;
}

int64_t RowColumnSums::chunks() const { return ceil_div(rows_, kSummedRows); }

int64_t RowColumnSums::shared_bytes(int64_t rows) const {
  int64_t bytes = 0;
  for (const Sum& sum : sums_)
    bytes += columns_ * element_bytes(sum) * (rows == 1 ? 1 : in_registers_ ? rows : rows + 1);
  return bytes;
}

// A loop over the columns of a thread, which are the same ones each time.
void RowColumnSums::open_columns(Lines& lines, int64_t threads) const {
  if (!in_registers_)
    return lines.open("for (uint32_t c = threadIdx.x; c < {}; c += {})", columns_, threads);
  lines.add("#pragma unroll");
  lines.open("for (uint32_t i = 0; i < {}; ++i)", ceil_div(columns_, threads));
  lines.line("const uint32_t c = threadIdx.x + i * {};", threads);
  if (columns_ % threads != 0) lines.line("if (c >= {}) continue;", columns_);
}

// In such a loop.
std::string RowColumnSums::sum_text(const Sum& sum) const {
  return in_registers_ ? fmt::format("of{}[i]", sum.output) : sum.of + "[c]";
}

void RowColumnSums::place(int64_t rows, std::vector<std::string>& setup) {
  block_rows_ = rows;
  int64_t offset = 0;
  // The widest elements first: all are aligned.
  std::vector<Sum*> order;
  for (Sum& sum : sums_) order.push_back(&sum);
  std::ranges::stable_sort(
      order, std::ranges::greater(), [](const Sum* sum) { return element_bytes(*sum); });
  for (Sum* sum : order) {
    const auto take = [&](std::string name, int64_t count) {
      setup.push_back(fmt::format("{0}* const {1} = reinterpret_cast<{0}*>(shared + {2});",
                                  stored_type(sum->node->outputs[0].dtype),
                                  name,
                                  offset));
      offset += count * columns_ * element_bytes(*sum);
      return name;
    };
    if (!in_registers_) sum->of = take(fmt::format("sum{}", sum->output), 1);
    if (block_rows_ > 1) sum->rows = take(fmt::format("added{}", sum->output), block_rows_);
  }
}

void RowColumnSums::print_clearing(Lines& lines, int64_t threads) const {
  if (in_registers_) {
    for (const Sum& sum : sums_)
      lines.line("{} of{}[{}] = {{}};",
                 stored_type(sum.node->outputs[0].dtype),
                 sum.output,
                 ceil_div(columns_, threads));
    return;
  }
  open_columns(lines, threads);
  for (const Sum& sum : sums_) lines.line("{}[c] = 0;", sum.of);
  lines.close();
}

void RowColumnSums::print_adding(Lines& lines, int64_t threads) const {
  if (block_rows_ == 1) return;
  lines.add("__syncthreads();");
  // A number that is known makes addresses of it.
  if (rows_ % block_rows_ == 0)
    lines.line("constexpr uint32_t there = {};", block_rows_);
  else
    lines.line("const uint32_t there = {0} - first < {1} ? {0} - first : {1};", rows_, block_rows_);
  open_columns(lines, threads);
  for (const Sum& sum : sums_) {
    lines.line("auto all{} = {};", sum.output, sum_text(sum));
    lines.line("for (uint32_t r = 0; r < there; ++r) all{0} = all{0} + {1}[r * {2} + c];",
               sum.output,
               sum.rows,
               columns_);
    lines.line("{} = all{};", sum_text(sum), sum.output);
  }
  lines.close();
}

void RowColumnSums::print_results(KernelText& text, int64_t threads) {
  Lines& lines = text.lines;
  open_columns(lines, threads);
  for (Sum& sum : sums_) {
    const DType dtype = sum.node->outputs[0].dtype;
    if (chunks() > 1) {
      sum.at = text.take(static_cast<size_t>(chunks() * columns_) * size_of(dtype));
      lines.line("{}[chunk * {} + c] = {};",
                 text.workspace(sum.at, stored_type(dtype), fmt::format("part{}", sum.output)),
                 columns_,
                 sum_text(sum));
    } else {
      lines.line("{}[c] = {} / {};",
                 text.output(sum.output),
                 sum_text(sum),
                 number_text(dtype, static_cast<double>(divisor_of(*sum.node))));
    }
  }
  lines.close();
}

void RowColumnSums::add_stages(KernelText& text) const {
  std::vector<KernelText::RowSum> sums;
  for (const Sum& sum : sums_) sums.push_back({sum.node, sum.output, sum.at});
  text.add_row_sums(sums, chunks());
}

}  // namespace ridge::cuda
