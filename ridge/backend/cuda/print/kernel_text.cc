#include "ridge/backend/cuda/print/kernel_text.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ridge/base/alignment.h"
#include "ridge/base/hash.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

constexpr int64_t kMostBlocks = 1 << 14;

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

}  // namespace

const std::vector<int64_t>& reduced_axes_of(const Node& node) {
  if (node.is<ReduceSum>()) return node.op_as<ReduceSum>().axes;
  if (node.is<ReduceMean>()) return node.op_as<ReduceMean>().axes;
  return node.op_as<ReduceMax>().axes;
}

int64_t divisor_of(const Node& node) {
  return node.is<ReduceMean>() ? node.inputs[0].type().elements() / node.outputs[0].elements() : 1;
}

std::string_view combining(const Node& reduction) {
  return reduction.is<ReduceMax>() ? "Larger" : "Plus";
}

std::string_view index_type_of(int64_t elements) {
  return elements < int64_t{1} << 31 ? "uint32_t" : "uint64_t";
}

// ---- KernelText ----

KernelText::KernelText(const FusedBody& body) {
  input_dtypes_.resize(body.graph.inputs().size());
  for (const Node* node : body.graph.inputs())
    input_dtypes_.at(input_number(*node)) = node->outputs[0].dtype;
  for (const Output& each : body.graph.outputs()) output_dtypes_.push_back(each.value.dtype());
  constexpr size_t kMostOps = 4;
  std::set<std::string_view> seen;
  for (const auto& node : body.graph.nodes()) {
    const bool is_named = !node->is<Input>() && !node->is<Constant>() && !node->is<Broadcast>() &&
                          !node->is<Reshape>();
    if (is_named && seen.size() < kMostOps && seen.insert(node->op->name()).second)
      ops_ += fmt::format("_{}", node->op->name());
  }
}

KernelText::KernelText(const Node& node) {
  for (const Value& value : node.inputs) input_dtypes_.push_back(value.dtype());
  for (const TensorType& type : node.outputs) output_dtypes_.push_back(type.dtype);
}

void KernelText::include(std::string_view header) {
  if (std::find(headers_.begin(), headers_.end(), header) == headers_.end())
    headers_.emplace_back(header);
}

void KernelText::open_stride(int64_t n) {
  const std::string_view type = index_type_of(n);
  lines.line("const {0} stride = static_cast<{0}>(gridDim.x) * {1};", type, kThreads);
  lines.open("for ({0} i = static_cast<{0}>(blockIdx.x) * {1} + threadIdx.x; i < {2}; i += stride)",
             type,
             kThreads,
             n);
}

void KernelText::finish_stride(std::string_view suffix, int64_t n) {
  lines.close();
  finish(suffix, ceil_div(n, kThreads), kThreads);
}

std::string KernelText::parameter(KernelOperand operand, std::string type, std::string name) {
  if (named_.emplace(name, true).second) {
    parameters_.push_back(fmt::format("{} {}", type, name));
    operands_.push_back(operand);
  }
  return name;
}

// Without __restrict__: a result may lie over an input, element by element.
std::string KernelText::input(size_t index, std::string_view type) {
  if (type.empty()) type = stored_type(input_dtypes_.at(index));
  return parameter(
      {KernelOperand::kInput, index}, fmt::format("const {}*", type), fmt::format("in{}", index));
}

std::string KernelText::output(size_t index, std::string_view type) {
  if (type.empty()) type = stored_type(output_dtypes_.at(index));
  return parameter(
      {KernelOperand::kOutput, index}, fmt::format("{}*", type), fmt::format("out{}", index));
}

std::string KernelText::workspace(size_t at, std::string_view type, std::string name) {
  return parameter({KernelOperand::kWorkspace, at}, fmt::format("{}*", type), std::move(name));
}

std::string KernelText::fault() { return parameter({KernelOperand::kFault, 0}, "Fault*", "fault"); }

size_t KernelText::take(size_t bytes) {
  const size_t at = made_.workspace_bytes;
  made_.workspace_bytes += aligned_bytes(bytes);
  return at;
}

void KernelText::finish(std::string_view suffix,
                        int64_t blocks,
                        int64_t threads,
                        size_t shared_bytes) {
  if (!listed_.empty())
    parameters_.push_back(
        fmt::format("const __grid_constant__ Addresses<{}> list", listed_.size()));
  operands_.insert(operands_.end(), listed_.begin(), listed_.end());
  if (operands_.size() > kMostOperands)
    throw Refused{fmt::format("has {} inputs and outputs", operands_.size())};
  const std::string entry = fmt::format("{}{}", kName, suffix);
  // The bound is written even for one block: without it the assembler spills a few registers so
  // that another block fits.
  functions_ += fmt::format("\nextern \"C\" __global__ void __launch_bounds__({}, {})\n{}({}) {{\n",
                            threads,
                            blocks_at_once,
                            entry,
                            fmt::join(parameters_, ", "));
  functions_ += lines.text() + "}\n";
  made_.launches.push_back(
      {.entry = entry,
       .blocks = static_cast<uint32_t>(std::min(blocks, kMostBlocks)),
       .threads = static_cast<uint32_t>(threads),
       .shared_bytes = shared_bytes,
       // Behind them lies the dynamic memory, aligned.
       .static_shared_bytes = (std::exchange(static_shared_bytes, 0) + 15) / 16 * 16,
       .operands = std::move(operands_),
       .listed = listed_.size()});
  lines = Lines();
  blocks_at_once = 1;
  parameters_.clear();
  operands_.clear();
  listed_.clear();
  named_.clear();
}

void KernelText::add_reduction(const Node& reduction, size_t at, int64_t count, size_t output_at) {
  const DType dtype = reduction.outputs[0].dtype;
  const std::string_view type = stored_type(dtype);
  while (count > 1) {
    const int64_t pieces = ceil_div(count, kPiece);
    const bool is_last = pieces == 1;
    const std::string x = workspace(at, type, "x");
    if (!is_last) at = take(static_cast<size_t>(pieces) * size_of(dtype));
    const std::string y = is_last ? output(output_at) : workspace(at, type, "y");
    const auto divisor = static_cast<double>(is_last ? divisor_of(reduction) : 1);
    lines.line("reduce_pieces<{}, {}>({}, {}, {}, {});",
               combining(reduction),
               type,
               x,
               y,
               count,
               number_text(dtype, divisor));
    const int64_t groups = kThreads / 16;
    finish(fmt::format("_stage{}", ++stages_), ceil_div(pieces, groups), kThreads);
    count = pieces;
  }
}

void KernelText::add_row_sums(const std::vector<RowSum>& sums, int64_t rows) {
  // Sums and means of one dtype.
  std::map<std::pair<DType, int64_t>, std::vector<RowSum>> kinds;
  for (const RowSum& sum : sums)
    kinds[{sum.reduction->outputs[0].dtype, divisor_of(*sum.reduction)}].push_back(sum);
  for (auto& [kind, same] : kinds)
    for (int64_t left = rows; left > 1; left = ceil_div(left, kSummedRows))
      add_row_stage(same, left);
}

void KernelText::add_row_stage(std::vector<RowSum>& sums, int64_t rows) {
  const Node& reduction = *sums.front().reduction;
  const DType dtype = reduction.outputs[0].dtype;
  const std::string_view type = stored_type(dtype);
  const int64_t columns = reduction.outputs[0].elements(), chunks = ceil_div(rows, kSummedRows);
  const bool is_last = chunks == 1;
  std::vector<KernelOperand> operands;
  for (RowSum& sum : sums) {
    operands.push_back({KernelOperand::kWorkspace, sum.at});
    if (!is_last) sum.at = take(static_cast<size_t>(chunks * columns) * size_of(dtype));
    operands.push_back(is_last ? KernelOperand{KernelOperand::kOutput, sum.output}
                               : KernelOperand{KernelOperand::kWorkspace, sum.at});
  }
  const auto divisor = static_cast<double>(is_last ? divisor_of(reduction) : 1);
  const auto count = static_cast<int64_t>(sums.size());
  include("list.h");
  lines.line("sum_rows<{}>(list, {}, {}, {});", type, rows, columns, number_text(dtype, divisor));
  list(std::move(operands));
  finish(
      fmt::format("_stage{}", ++stages_), ceil_div(count * chunks * columns, kThreads), kThreads);
}

void KernelText::include_functions(const Statements& code) {
  needs_functions = needs_functions || code.needs_functions;
  if (code.needs_approx) include("approx.h");
}

PrintedKernel KernelText::result(std::string_view prefix, std::string_view summary) {
  std::string source = fmt::format("// {}\n", summary);
  source += "#include \"ridge/backend/cuda/device/kernel.h\"\n";
  if (needs_functions) source += "#include \"ridge/backend/cpu/isa/functions.h\"\n";
  if (needs_random)
    source += "#include \"ridge/base/philox.h\"\n#include \"ridge/backend/cuda/device/random.h\"\n";
  for (const std::string& header : headers_)
    source += fmt::format("#include \"ridge/backend/cuda/device/{}\"\n", header);
  // A namespace of its own, so that several kernels may share a translation unit.
  source += "\nnamespace ridge::cuda {\n";
  if (needs_functions) source += "using namespace ridge::cpu;\n";
  source += functions_ + "\n}  // namespace ridge::cuda\n";
  made_.name = fmt::format("{}{}_{:016x}", prefix, ops_, hash64(source));
  made_.source = replaced(std::move(source), kName, made_.name);
  for (KernelLaunch& launch : made_.launches)
    launch.entry = replaced(std::move(launch.entry), kName, made_.name);
  return std::move(made_);
}

// ---- Statements ----

std::string Statements::name(const Node& node, std::string_view text) {
  std::string made = fmt::format("{}_{}", node.op->name(), node.id);
  lines.push_back(fmt::format("const {} {} = {};", value_type(node.outputs[0].dtype), made, text));
  know(node, made);
  return made;
}

std::string Statements::value(const Node& node) {
  const auto found = names_.find(&node);
  if (found != names_.end()) return found->second;
  if (node.is<Constant>()) return constant_text(node);
  if (node.is<Reshape>()) return value(*node.inputs[0].node);
  if (std::string made = leaf_(node); !made.empty()) {
    know(node, made);
    return made;
  }
  std::vector<std::string> operands;
  for (const Value& input : node.inputs) operands.push_back(value(*input.node));
  std::string why;
  const std::optional<std::string> text = expression(node, operands, why, functions_);
  if (!text) throw Refused{fmt::format("holds {}, which {}", node.op->name(), why)};
  if (functions_ == Functions::kApprox && has_approx_form(node))
    needs_approx = true;
  else
    needs_functions = needs_functions || cuda::needs_functions(node);
  return name(node, *text);
}

}  // namespace ridge::cuda
