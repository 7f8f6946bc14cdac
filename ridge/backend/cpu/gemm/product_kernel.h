// A product (a matrix product or a convolution) that is made ready, alone or with a loop over its
// results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/backend/host.h"
#include "ridge/base/function_ref.h"
#include "ridge/graph/ops/fused.h"

namespace ridge::cpu {

/// Called with ranges of the elements of a result once they are final, from any thread. All of them
/// make up the result.
using FinishRange = FunctionRef<void(int64_t begin, int64_t end)>;

/// Calls it with the rows of a block of a matrix that begins at element `first` and has rows of
/// `row` elements.
void finish_rows(const FinishRange& finish, const GemmBlock& block, int64_t first, int64_t row);

/// Calls run(finish_block), which is null where `finish` is: it passes on the rows of blocks of
/// matrices that lie `stride` elements apart from element `first` on.
template <typename Run>
void run_finishing(
    const FinishRange* finish, int64_t first, int64_t stride, int64_t row, const Run& run) {
  if (finish == nullptr) return run(nullptr);
  const auto finish_block = [&](const GemmBlock& block) {
    finish_rows(*finish, block, first + block.item * stride, row);
  };
  const FinishBlock each(finish_block);
  run(&each);
}

class FlatProgram;

/// A loop over the elements of a product, which run where its first result will lie.
class LoopBehind {
 public:
  /// The loop reads the product first, then `count` inputs of a node from number `begin` on.
  LoopBehind(const Fused& loop, size_t begin, size_t count);

  /// False where no kernel runs parts of it.
  bool is_complete() const { return program_ != nullptr; }
  /// Elements [begin, end) of the results, the first of which holds those of the product; `args`
  /// are those of the node.
  void run(const KernelArgs& args,
           std::span<void* const> results,
           int64_t begin,
           int64_t end) const;

 private:
  std::shared_ptr<const FlatProgram> program_;
  size_t begin_, count_;
};

struct ProductKernel {
  /// Inputs and result are those of the product; `finish` may be null.
  std::function<void(const KernelArgs& args, const FinishRange* finish)> run;
  size_t workspace_bytes = 0;
};

/// gemm_batched() of the inputs, of that dtype; `op` names it in errors.
ProductKernel make_batched_product(DType dtype,
                                   std::string_view op,
                                   const GemmShape& shape,
                                   const GemmBatch& batch);

/// gemm_packed() of the first input and of panels_operand() of the second one, f32 or f64.
ProductKernel make_packed_product(DType dtype, const GemmShape& shape);

/// gemm_amx() of the inputs, and gemm_amx_packed() of the first input and of amx_operand() of the
/// second one.
template <typename In, typename Out>
ProductKernel make_amx_product(const GemmShape& shape, const GemmBatch& batch);
template <typename In, typename Out>
ProductKernel make_amx_packed_product(const GemmShape& shape);

/// The kernel without anything behind it.
std::unique_ptr<HostKernel> make_alone(ProductKernel kernel);

/// A choice of an op; functions are of a node of that op.
struct ProductChoice {
  Choice choice;
  ProductKernel (*make)(const Node& product);
  bool (*accepts)(const Node& product) = nullptr;
  std::vector<PackedOperand> (*packed_operands)(const Node& product) = nullptr;
  ProductKernel (*make_packed)(const Node& product) = nullptr;
};

/// Adds it to the op Product and to Joint, its ProductLoop in f32 and f64. The loop of that runs
/// over each range of the product, in place, while the caches hold it.
template <typename Product, typename Joint>
void add_product(KernelTable& table, const ProductChoice& choice);

}  // namespace ridge::cpu
