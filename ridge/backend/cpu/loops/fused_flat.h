// Fused bodies without rows: one loop over all elements, and reductions of all of them.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/backend/cpu/fill_broadcast.h"
#include "ridge/backend/cpu/loop.h"
#include "ridge/backend/cpu/staged_reduction.h"
#include "ridge/graph/ops/fused.h"

namespace ridge::cpu {

using MakeLoop = std::unique_ptr<LoopKernel> (*)(const Loop&);

class FlatProgram {
 public:
  FlatProgram(const FusedBody& body, MakeLoop make_loop);

  /// False where the loop has no kernel.
  bool is_complete() const { return kernel_ != nullptr; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  void run(const KernelArgs& args) const;

  /// Whether it only makes elements, so that parts of it can run apart.
  bool has_ranges() const { return totals_.empty(); }
  /// Elements [begin, end) of the results.
  void run_range(const KernelArgs& args, int64_t begin, int64_t end) const;

 private:
  // How an input of the loop is read: `step` is the bytes from one element to the next.
  struct Source {
    size_t index = 0;  // number of the node's input
    size_t size = 0;
    size_t step = 0;
    int fill = -1;  // the buffer that a broadcast input is written to
    BroadcastMap map;
  };
  // A reduction of all elements, its first stage within the loop.
  struct Total {
    size_t result = 0;  // number of the result, in the loop and in the node
    size_t size = 0;
    StagedReduction reduction;
    size_t workspace = 0;
  };

  int add_input(const Node& node);
  void add_random_state(const Node& node);
  int add_op(const Node& node);
  void add_result(const FusedBody& body, const Node& node);
  void choose_step();
  void fill(const KernelArgs& args, int64_t begin, int64_t n, std::byte* filled) const;
  void run_piece(const KernelArgs& args, int64_t begin, int64_t n, std::byte* filled) const;
  void* workspace(const KernelArgs& args, const Total& total) const;

  int64_t count_;
  int64_t step_ = 0;      // elements of a run of the loop; 0: as many as a thread takes
  bool repeats_ = false;  // what is written out is the same a step later
  Loop loop_;
  std::vector<int> value_of_;            // by node of the body
  std::map<size_t, int> random_states_;  // value of the loop, by input of the node
  std::vector<Source> sources_;
  std::vector<size_t> result_sizes_;  // 0 for reductions
  std::vector<Total> totals_;
  int fills_ = 0;
  size_t workspace_bytes_ = 0;
  std::unique_ptr<LoopKernel> kernel_;
};

/// The program of an op without rows, made once for all that have its body; null where there is no
/// kernel of its loop.
std::shared_ptr<const FlatProgram> find_flat_program(const Fused& op);

}  // namespace ridge::cpu
