// Nodes by cuBLASLt's stand-in, on the stand-in for the driver.
#pragma once

#include "ridge/backend/cuda/blas/matmul.h"
#include "tests/backend/cuda/fake_blas/fake_blas.h"
#include "tests/backend/cuda/library_test.h"

namespace ridge::cuda {

inline std::shared_ptr<const Blas> make_blas(const DeviceRef& gpu) {
  return std::make_shared<const Blas>(gpu, BlasLibrary::open());
}

/// The node of a graph that was built, by the first choice, from the driver's start to its end.
inline NamedTensors run_node(const DeviceRef& gpu, CaseBuilder& built) {
  const Node& node = node_of(built);
  const auto blas = make_blas(gpu);
  const PlainKernels plain(gpu);
  return run_kernel(
      gpu, built, *make_blas_kernel(blas, node, blas_choices(*blas, node).at(0), plain));
}

class CudaBlas : public LibraryTest<test::FakeBlas> {
 protected:
  CudaBlas() : LibraryTest("RIDGE_CUBLASLT", RIDGE_FAKE_CUBLASLT, test::kFakeBlasEntry) {}
  void expect_each_may_fail(CaseBuilder& built) {
    // Shapes of algorithms that know none are no error.
    expect_each_call_may_fail<BlasError>(
        13, [&] { run_node(device(), built); }, "cublasLtMatmulAlgoConfigGetAttribute");
  }

  test::FakeBlas& blas_ = library_;
};

}  // namespace ridge::cuda
