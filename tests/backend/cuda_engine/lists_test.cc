// Lists of loops on a simulated GPU: many parameters are updated in a few launches, with the CPU's
// bits.
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/support/many_parameters.h"
#include "tests/support/own_program.h"

namespace ridge::test {
namespace {

class CudaLists : public SimulatedGpu {};

TEST_F(CudaLists, ManyParametersAreUpdatedWithTheBitsOfTheCpu) {
  for (const bool has_copies : {false, true}) {
    SCOPED_TRACE(has_copies);
    const auto cpu = make_backend("cpu");
    OwnProgram plain(many_parameters(has_copies), *cpu, {});
    // The third step is not finite, and leaves all as it is.
    const ManyRun want = run_many(plain, 5, 2);
    for (const Schedule schedule : {Schedule::kAtLast, Schedule::kRandom}) {
      fake_.reset();
      fake_.set_schedule(schedule, 4);
      const auto gpu = make_backend_cuda();
      OwnProgram program(many_parameters(has_copies), *gpu, {});
      const ManyRun got = run_many(program, 5, 2);
      EXPECT_EQ(got.norms, want.norms);
      EXPECT_EQ(bit_difference(got.state, want.state), "");
    }
    expect_clean();
  }
}

}  // namespace
}  // namespace ridge::test
