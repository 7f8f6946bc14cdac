// Runs a graph on the CPU backend in every way that must not change a bit.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>

#include <functional>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/compare.h"

namespace ridge::test {

/// Restores instruction set and number of threads.
class CpuSettings {
 public:
  CpuSettings() : isa_(cpu::isa()), threads_(num_threads()) {}
  ~CpuSettings() {
    cpu::set_isa(isa_);
    set_num_threads(threads_);
  }
  CpuSettings(const CpuSettings&) = delete;
  CpuSettings& operator=(const CpuSettings&) = delete;

 private:
  cpu::Isa isa_;
  int threads_;
};

/// The results of `graph` with one thread and AVX2, after expecting the same bits from 2 and 5
/// threads and from AVX-512 where this machine has it.
inline NamedTensors run_every_way(const Graph& graph,
                                  const NamedTensors& inputs,
                                  const ChooseKernel& choose = nullptr) {
  const CpuSettings restore;
  mallopt(M_PERTURB, 0x5a);  // memory that a kernel should have written, but did not, shows
  const auto backend = make_cpu_backend();
  NamedTensors first;
  for (cpu::Isa isa : cpu::kAllIsas) {
    if (!cpu::has_isa(isa)) continue;
    cpu::set_isa(isa);
    for (int threads : {1, 2, 5}) {
      set_num_threads(threads);
      NamedTensors results = evaluate(graph, *backend, inputs, choose);
      if (first.empty())
        first = std::move(results);
      else
        EXPECT_EQ(bit_difference(results, first), "") << cpu::name_of(isa) << ", " << threads;
    }
  }
  return first;
}

inline NamedTensors run_every_way(CaseBuilder& built, const ChooseKernel& choose = nullptr) {
  return run_every_way(built.graph(), built.tensors(), choose);
}

}  // namespace ridge::test
