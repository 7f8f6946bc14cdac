// Nodes with their printed kernels, run on the CPU against the backends of the CPU.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/graph/tensor.h"
#include "ridge/run/evaluate.h"
#include "tests/backend/cuda_kernels/printed_on_host.h"

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

/// Cases that are compiled together: make some, then compare.
class Cases {
 public:
  /// The node on numbers of its seed; integers are below `index_limit`, where that is given. False
  /// where there is no kernel; then refusal() says why.
  bool add(const Node& node, uint64_t seed, Fill how, int64_t index_limit = 0);
  /// The node on these operands.
  bool add(const Node& node, NamedTensors operands);
  const std::string& refusal() const { return refusal_; }
  size_t size() const { return cases_.size(); }

  /// All cases have the bits of the CPU backend.
  void expect_bits_of_cpu();
  /// Those that say so have the bits of the CPU backend, the others are near the reference: as near
  /// as the length of their sums allows, or as the table of tolerances does.
  void expect_results();

  /// Of the first case.
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
  bool add(Case each);
  static NamedTensors inputs_of(const Case& each);
  NamedTensors run(const Case& each,
                   const NamedTensors& inputs,
                   const NamedTensors& wanted,
                   bool in_place);
  void expect_one(const Case& each);

  PrintedOnHost host_;
  std::vector<Case> cases_;
  std::string refusal_;
};

}  // namespace ridge::test
