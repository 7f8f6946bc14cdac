// The innermost part of fused kernels: one pass over the elements of a row, or of a piece of one.
//
// Machine code (jit/) comes first. What it cannot translate, such as functions of f64 that call
// libm, runs block by block with vector kernels, and so does everything where the setting cpu.jit
// is off. Code that makes a byte of one byte runs once, for a table of its results. A loop over
// rows holds no dropout, and no loop holds gather or scatter-add, which are kernels of their own
// (gather.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ridge/graph/op.h"

namespace ridge::cpu {

/// Values are numbered: the inputs first, in order, then one for each op.
struct LoopInput {
  DType dtype{};
  bool uniform = false;  ///< One element for the whole pass; else element i belongs to step i.
  int ahead = 0;         ///< A wish: fetch what lies so many bytes further on as well; 0: do not.
};

/// An elementwise op of the graph on earlier values of the loop; or a constant of one number, which
/// has no operands. The second operand of a dropout is a uniform input, that points at three i64.
struct LoopOp {
  std::shared_ptr<const Op> op;
  std::vector<int> operands;
  DType dtype{};  ///< Type of the result.
};

/// kStore keeps every element; kSum and kMax reduce over the pass in the order of `combine` in
/// isa/lanes.h (four turns of sixteen lanes); their values are f64 or f32, as their results.
struct LoopResult {
  enum Kind : uint8_t { kStore, kSum, kMax };
  int value = 0;
  Kind kind = kStore;
  /// A wish: store past the caches, which pays where the results exceed them.
  bool streamed = false;
};

struct Loop {
  std::vector<LoopInput> inputs;
  std::vector<LoopOp> ops;
  std::vector<LoopResult> results;
  int64_t elements = 0;  ///< Elements of the tensors that the loop goes over; dropout alone asks.

  /// The dtype of a value: inputs come first, then the results of the ops.
  DType dtype_of(int value) const {
    const auto at = static_cast<size_t>(value);
    return at < inputs.size() ? inputs[at].dtype : ops[at - inputs.size()].dtype;
  }
};

/// One pass. Stored results may lie exactly over inputs of the same element size; anything else
/// must not overlap.
struct LoopArgs {
  const void* const* inputs;  ///< First elements, in the order of Loop::inputs.
  void* const* results;       ///< First elements; the one element of reductions.
  int64_t n = 0;              ///< At least 1.
  int64_t first = 0;          ///< Element of those tensors at which the pass begins; dropout alone
                              ///< asks.
};

/// A loop made ready to run, by any number of threads at once. All executors give the same bits.
class LoopKernel {
 public:
  virtual ~LoopKernel() = default;
  virtual void run(const LoopArgs& args) const = 0;
};

/// Block by block with the vector kernels of the ops; null where an op has none.
std::unique_ptr<LoopKernel> make_block_loop(const Loop& loop);

/// Machine code made for this loop and the instruction set in use; null where an op or dtype cannot
/// be translated.
std::unique_ptr<LoopKernel> make_jit_loop(const Loop& loop);

/// Element by element: what the others are compared with. Null where an op has no scalar form.
std::unique_ptr<LoopKernel> make_scalar_loop(const Loop& loop);

}  // namespace ridge::cpu
