#include "ridge/backend/cpu/conv/conv_kernel.h"

#include <algorithm>
#include <array>
#include <memory>

#include "ridge/backend/cpu/loops/fused_flat.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cpu {
namespace {

constexpr size_t kMostInputs = 32;

// The convolution of a fused node, as a node of its own.
class ConvolutionNode {
 public:
  explicit ConvolutionNode(const Node& fused) {
    const Value x = input(graph_, "x", fused.inputs[0].type());
    const Value w = input(graph_, "w", fused.inputs[1].type());
    node_ = &graph_.add(std::make_shared<const Conv2d>(fused.op_as<FusedConv2d>().product), {x, w});
  }
  const Node& node() const { return *node_; }

 private:
  Graph graph_{"convolution"};
  const Node* node_ = nullptr;
};

// The loop of a fused node; null where parts of it cannot run in place.
std::shared_ptr<const FlatProgram> find_loop(const Node& fused, const TensorType& product) {
  const TensorType& first = fused.outputs[0];
  if (first.dtype != product.dtype || first.elements() != product.elements() ||
      fused.inputs.size() > kMostInputs)
    return nullptr;
  auto program = find_flat_program(fused.op_as<FusedConv2d>().loop);
  return program != nullptr && program->has_ranges() ? program : nullptr;
}

std::unique_ptr<HostKernel> with_loop(const Node& fused, ConvKernel (*make)(const Node& conv)) {
  const ConvolutionNode convolution(fused);
  auto loop = find_loop(fused, convolution.node().outputs[0]);
  check_internal(loop != nullptr, "no kernel for node '{}'", fused.site.name);
  ConvKernel kernel = make(convolution.node());
  const size_t bytes = kernel.workspace_bytes;
  return std::make_unique<HostKernel>(
      [run = std::move(kernel.run), loop = std::move(loop)](const KernelArgs& args) {
        // The convolution's result lies where the loop's first one will.
        std::array<const void*, kMostInputs> inputs{args.outputs[0]};
        std::copy(args.inputs.begin() + 2, args.inputs.end(), inputs.begin() + 1);
        const KernelArgs of_loop{{inputs.data(), args.inputs.size() - 1}, args.outputs};
        const auto run_loop = [&](int64_t begin, int64_t end) {
          loop->run_range(of_loop, begin, end);
        };
        const FinishRange finish(run_loop);
        run(args, &finish);
      },
      bytes);
}

}  // namespace

std::unique_ptr<HostKernel> make_alone(ConvKernel kernel) {
  const size_t bytes = kernel.workspace_bytes;
  return std::make_unique<HostKernel>(
      [run = std::move(kernel.run)](const KernelArgs& args) { run(args, nullptr); }, bytes);
}

void finish_rows(const FinishRange& finish, const GemmBlock& block, int64_t first, int64_t row) {
  const int64_t begin = first + block.row * row;
  if (block.columns == row) return finish(begin, begin + block.rows * row);
  for (int64_t i = 0; i < block.rows; ++i)
    finish(begin + i * row + block.column, begin + i * row + block.column + block.columns);
}

void add_convolution(KernelTable& table, const ConvChoice& c) {
  const auto packed_form = [&](auto operands, auto make) {
    return c.packed_operands == nullptr ? PackedForm{} : PackedForm{operands, make};
  };
  table.add(
      Conv2d::kTraits.name,
      c.choice,
      [c](const Node& node) { return make_alone(c.make(node)); },
      c.accepts,
      packed_form(c.packed_operands,
                  [c](const Node& node) { return make_alone(c.make_packed(node)); }));
  table.add(
      FusedConv2d::kTraits.name,
      c.choice,
      [c](const Node& node) { return with_loop(node, c.make); },
      [c](const Node& node) {
        const ConvolutionNode convolution(node);
        return (c.accepts == nullptr || c.accepts(convolution.node())) &&
               find_loop(node, convolution.node().outputs[0]) != nullptr;
      },
      packed_form([c](const Node& node) { return c.packed_operands(ConvolutionNode(node).node()); },
                  [c](const Node& node) { return with_loop(node, c.make_packed); }));
}

}  // namespace ridge::cpu
