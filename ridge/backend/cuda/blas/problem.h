// A product as cuBLASLt is told of it: the algorithms that it has, and calls of one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/backend/cuda/blas/cublaslt.h"
#include "ridge/backend/cuda/blas/epilogue.h"
#include "ridge/backend/cuda/driver/stream.h"

namespace ridge::cuda {

/// One algorithm for a node.
struct BlasChoice {
  Choice choice;  ///< "cublaslt_67_tile20_stages8": the configuration, so that a plan can pin it.
  BlasAlgorithm algorithm;
  size_t workspace_bytes = 0;  ///< Bytes for the algorithm alone.
  int64_t rows = 0;            ///< Rows of a product of bytes that it multiplies (matmul_i8.h).
};

/// The first of the bits classes of these choices. Each has its own: the library does not say which
/// of its algorithms agree to the bit. Sums of integers are exact: these have the CPU's bits, 0.
inline constexpr int kBlasBits = 16;

/// Row-major op(A) (m, k) times op(B) (k, n), `batches` of them side by side.
struct BlasProblem {
  int64_t m = 0, n = 0, k = 0, batches = 1;
  bool transpose_a = false, transpose_b = false;
  DType factors = DType::kF32;  ///< Dtype of what is multiplied.
  DType result = DType::kF32;
  bool tf32 = false;
  bool rounds = false;  ///< The factors, into the workspace.
  std::optional<BlasEpilogue> epilogue = {};

  std::string text() const;
  /// The part of names of choices that says in what is multiplied: "cublaslt_tf32".
  std::string name() const;
  bool is_of_bytes() const { return factors == DType::kI8; }
  size_t bytes_of_a() const { return static_cast<size_t>(batches * m * k) * size_of(factors); }
  size_t bytes_of_b() const { return static_cast<size_t>(batches * k * n) * size_of(factors); }
  bool has_bias() const { return epilogue && epilogue->bias >= 0; }
  bool has_aux() const { return epilogue && (epilogue->aux >= 0 || epilogue->aux_result >= 0); }
};

/// The library's algorithms, its best guess first; none where it has none for the problem. All of
/// them give the same bits in each run: where they split the depth, parts are added up in order, in
/// the type of the sums. BlasError.
std::vector<BlasChoice> blas_algorithms(const Blas& blas, const BlasProblem& problem);

/// A problem by one of its algorithms. Nothing is allocated in a launch.
class BlasProduct {
 public:
  /// BlasError.
  BlasProduct(std::shared_ptr<const Blas> blas,
              const BlasProblem& problem,
              const BlasChoice& choice);
  ~BlasProduct();

  /// Bytes to reserve for the algorithm's workspace.
  size_t reserved_bytes() const;
  /// The addresses of the operands of the epilogue in the next launch, as far as it has them.
  void set_places(const void* bias, const void* aux) const;
  /// Device memory of the problem's shapes; `workspace`: reserved_bytes(). BlasError.
  void launch(Stream& stream, const void* a, const void* b, void* result, void* workspace) const;

 private:
  class Description;

  std::shared_ptr<const Blas> blas_;
  BlasProblem problem_;
  std::unique_ptr<const Description> description_;
  BlasAlgorithm algorithm_;
  std::string name_;
  size_t workspace_bytes_;

  friend std::vector<BlasChoice> blas_algorithms(const Blas& blas, const BlasProblem& problem);
};

}  // namespace ridge::cuda
