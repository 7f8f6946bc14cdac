#include "ridge/backend/cpu/gemm/product_kernel.h"

#include <algorithm>
#include <array>
#include <memory>

#include "ridge/backend/cpu/gemm/gemm_amx.h"
#include "ridge/backend/cpu/loops/fused_flat.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cpu {
namespace {

constexpr size_t kMostInputs = 32;

// The product of a joint node, as a node of its own.
template <typename Product, typename Joint>
class ProductNode {
 public:
  explicit ProductNode(const Node& joint) {
    const Value a = input(graph_, "a", joint.inputs[0].type());
    const Value b = input(graph_, "b", joint.inputs[1].type());
    node_ = &graph_.add(std::make_shared<const Product>(joint.op_as<Joint>().product), {a, b});
  }
  const Node& node() const { return *node_; }

 private:
  Graph graph_{"product"};
  const Node* node_ = nullptr;
};

// The loop of a joint node.
template <typename Joint>
LoopBehind loop_of(const Node& joint) {
  return {joint.op_as<Joint>().loop, 2, joint.inputs.size() - 2};
}

// Whether the loop of a joint node can run in place of the product.
template <typename Joint>
bool runs_in_place(const Node& joint, const TensorType& product) {
  const TensorType& first = joint.outputs[0];
  return size_of(product.dtype) >= 4 && first.dtype == product.dtype &&
         first.elements() == product.elements() && loop_of<Joint>(joint).is_complete();
}

template <typename Product, typename Joint>
std::unique_ptr<HostKernel> with_loop(const Node& joint,
                                      ProductKernel (*make)(const Node& product)) {
  const ProductNode<Product, Joint> product(joint);
  ProductKernel kernel = make(product.node());
  const size_t bytes = kernel.workspace_bytes;
  return std::make_unique<HostKernel>(
      [run = std::move(kernel.run), loop = loop_of<Joint>(joint)](const KernelArgs& args) {
        const auto run_loop = [&](int64_t begin, int64_t end) {
          loop.run(args, args.outputs, begin, end);
        };
        const FinishRange finish(run_loop);
        run(args, &finish);
      },
      bytes);
}

}  // namespace

LoopBehind::LoopBehind(const Fused& loop, size_t begin, size_t count)
    : begin_(begin), count_(count) {
  if (count >= kMostInputs) return;
  program_ = find_flat_program(loop);
  if (program_ != nullptr && !program_->has_ranges()) program_ = nullptr;
}

void LoopBehind::run(const KernelArgs& args,
                     std::span<void* const> results,
                     int64_t begin,
                     int64_t end) const {
  std::array<const void*, kMostInputs> inputs{results[0]};
  const auto others = args.inputs.subspan(begin_, count_);
  std::copy(others.begin(), others.end(), inputs.begin() + 1);
  program_->run_range({{inputs.data(), count_ + 1}, results}, begin, end);
}

ProductKernel make_packed_product(DType dtype, const GemmShape& shape) {
  check_internal(gemm_panels(shape, dtype).has_value(), "[gemm] nothing is packed for the shape");
  const auto make = [&]<typename T>(T) {
    return ProductKernel{[shape](const KernelArgs& args, const FinishRange* finish) {
      run_finishing(finish, 0, 0, shape.ldc, [&](const FinishBlock* finish_block) {
        gemm_packed(shape,
                    static_cast<const T*>(args.inputs[0]),
                    args.inputs[1],
                    static_cast<T*>(args.outputs[0]),
                    finish_block);
      });
    }};
  };
  return dtype == DType::kF64 ? make(double{}) : make(float{});
}

ProductKernel make_batched_product(DType dtype,
                                   std::string_view op,
                                   const GemmShape& shape,
                                   const GemmBatch& batch) {
  return dispatch_float(dtype, op, [&]<typename T>(TypeTag<T>) {
    const auto run = [shape, batch](const KernelArgs& args, const FinishRange* finish) {
      run_finishing(finish, 0, batch.stride_c, shape.ldc, [&](const FinishBlock* finish_block) {
        gemm_batched(shape,
                     batch,
                     static_cast<const T*>(args.inputs[0]),
                     static_cast<const T*>(args.inputs[1]),
                     static_cast<T*>(args.outputs[0]),
                     /*accumulate=*/false,
                     args.workspace,
                     finish_block);
      });
    };
    return ProductKernel{run, gemm_workspace_bytes(shape, dtype, batch.count)};
  });
}

template <typename In, typename Out>
ProductKernel make_amx_product(const GemmShape& shape, const GemmBatch& batch) {
  return {[shape, batch](const KernelArgs& args, const FinishRange* finish) {
            run_finishing(finish, 0, batch.stride_c, shape.ldc, [&](const FinishBlock* each) {
              gemm_amx(shape,
                       batch,
                       static_cast<const In*>(args.inputs[0]),
                       static_cast<const In*>(args.inputs[1]),
                       static_cast<Out*>(args.outputs[0]),
                       /*accumulate=*/false,
                       args.workspace,
                       each);
            });
          },
          gemm_amx_workspace_bytes(shape, batch, /*has_panels=*/false)};
}

template <typename In, typename Out>
ProductKernel make_amx_packed_product(const GemmShape& shape) {
  return {[shape](const KernelArgs& args, const FinishRange* finish) {
            run_finishing(finish, 0, 0, shape.ldc, [&](const FinishBlock* each) {
              gemm_amx_packed(shape,
                              static_cast<const In*>(args.inputs[0]),
                              args.inputs[1],
                              static_cast<Out*>(args.outputs[0]),
                              args.workspace,
                              each);
            });
          },
          gemm_amx_workspace_bytes(shape, {}, /*has_panels=*/true)};
}

#define RIDGE_INSTANTIATE(In, Out)                                                      \
  template ProductKernel make_amx_product<In, Out>(const GemmShape&, const GemmBatch&); \
  template ProductKernel make_amx_packed_product<In, Out>(const GemmShape&);
RIDGE_INSTANTIATE(float, float)
RIDGE_INSTANTIATE(BF16, BF16)
RIDGE_INSTANTIATE(BF16, float)
#undef RIDGE_INSTANTIATE

std::unique_ptr<HostKernel> make_alone(ProductKernel kernel) {
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

template <typename Product, typename Joint>
void add_product(KernelTable& table, const ProductChoice& c) {
  using Alone = ProductNode<Product, Joint>;
  const auto packed_form = [&](auto operands, auto make) {
    return c.packed_operands == nullptr ? PackedForm{} : PackedForm{operands, make};
  };
  table.add(
      Product::kTraits.name,
      c.choice,
      [c](const Node& node) { return make_alone(c.make(node)); },
      c.accepts,
      packed_form(c.packed_operands,
                  [c](const Node& node) { return make_alone(c.make_packed(node)); }));
  table.add(
      Joint::kTraits.name,
      c.choice,
      [c](const Node& node) { return with_loop<Product, Joint>(node, c.make); },
      [c](const Node& node) {
        const Alone product(node);
        return (c.accepts == nullptr || c.accepts(product.node())) &&
               runs_in_place<Joint>(node, product.node().outputs[0]);
      },
      packed_form(
          [c](const Node& node) { return c.packed_operands(Alone(node).node()); },
          [c](const Node& node) { return with_loop<Product, Joint>(node, c.make_packed); }));
}

template void add_product<Conv2d, FusedConv2d>(KernelTable&, const ProductChoice&);
template void add_product<MatMul, FusedMatMul>(KernelTable&, const ProductChoice&);

}  // namespace ridge::cpu
