// Nodes with their printed kernels, run on the CPU against the backends of the CPU.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/graph/graph.h"
#include "ridge/run/evaluate.h"
#include "tests/backend/cuda_kernels/printed_on_host.h"
#include "tests/backend/cuda_kernels/test_limits.h"
#include "tests/support/case_builder.h"

namespace ridge::test {

/// "0", "1", ...: how inputs and outputs of nodes alone are named.
std::string name_of_number(size_t i);

/// Ordinary numbers, and every kind of special one.
double any_number(std::mt19937_64& random, bool special);

enum class Fill : uint8_t {
  kTame,
  kSpecial,  ///< Infinities, NaN, subnormal numbers and the ends of ranges among others.
  kZeros,    ///< Zeros of both signs: which of equal numbers a maximum keeps.
};

/// The choice of the CPU whose bits printed kernels have, and which no instruction set changes.
size_t choose_packed(const Node& node, const std::vector<Choice>& choices);

/// Cases that are compiled together: make some, then compare. Each runs with the grid of its
/// launch, and with one block and results in place of what may be overwritten: the bits are the
/// same, and what lies beside operands and results is neither read nor written.
class Cases {
 public:
  using Print = cuda::Printing (*)(const Node&, const cuda::DeviceLimits&);
  /// Checks a node alone with operands and results "0", "1", ...
  using Check = std::function<void(const Graph&, const NamedTensors&, const NamedTensors&)>;

  /// Prints kernels for a device of these limits.
  explicit Cases(const cuda::DeviceLimits& limits = kH200) : limits_(limits) {}

  /// The node on numbers of its seed; integers are below `index_limit`, where that is given. False
  /// where there is no kernel; then refusal() says why.
  bool add(const Node& node,
           uint64_t seed,
           Fill how,
           int64_t index_limit = 0,
           Print print_node = cuda::print_kernel);
  /// The node on these operands.
  bool add(const Node& node, NamedTensors operands, Print print_node = cuda::print_kernel);
  /// The node that is the first output of what was built, on its inputs. It has a kernel.
  void add(CaseBuilder built, Print print_node = cuda::print_kernel);
  /// Every loop that has a kernel, of the graph behind the passes.
  void add_loops(Graph graph,
                 uint64_t seed,
                 int64_t index_limit,
                 Print print_node = cuda::print_kernel);
  const std::string& refusal() const { return refusal_; }
  size_t size() const { return cases_.size(); }
  const cuda::PrintedKernel& kernel(size_t i) const { return cases_[i].kernel; }
  const Graph& graph(size_t i) const { return cases_[i].graph; }

  /// All cases have the bits of the CPU backend.
  void expect_bits_of_cpu();
  /// Those that say so have the bits of the CPU backend, the others are as near the reference as
  /// the table of tolerances says.
  void expect_results();
  /// Each passes the check.
  void expect(const Check& check);

  /// The inputs of the first case.
  NamedTensors inputs() const { return inputs_of(cases_[0]); }
  /// One run of it alone.
  HostFault run_with(const NamedTensors& inputs, NamedTensors& outputs);

 private:
  struct Case {
    Graph graph;
    cuda::PrintedKernel kernel = {};
    uint64_t seed = 0;
    Fill how = Fill::kTame;
    int64_t index_limit = 0;
    NamedTensors operands = {};
  };
  bool add(Case each, Print print_node = cuda::print_kernel);
  static NamedTensors inputs_of(const Case& each);
  NamedTensors run(const Case& each, const NamedTensors& inputs, bool in_one_block);

  cuda::DeviceLimits limits_;
  PrintedOnHost host_;
  std::vector<Case> cases_;
  std::string refusal_;
};

}  // namespace ridge::test
