// What of a state the guard compares, and how one step of it is summed up.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ridge/proof/statistics.h"
#include "ridge/tune/engine/guard/variant.h"

namespace ridge {

/// A tensor made from a buffer of the state: (after the step - keep * before it) * scale.
struct Compared {
  enum class Kind : uint8_t { kGradient, kStatistic, kUpdate };
  std::string name;  ///< Such as "layers.0.weight: gradient".
  Kind kind = Kind::kGradient;
  std::string buffer;
  double keep = 1, scale = 1;
};

/// Gradients, off the first moments where there are any; changes of running statistics; and changes
/// of parameters where no moments can be matched (update.h).
std::vector<Compared> compared_tensors(const Variant& variant,
                                       const nn::OptimizerOptions& optimizer);

/// True when a parameter's update can be looked at given equal moments: there are some, and each
/// step keeps a part of them.
bool can_match_moments(const nn::OptimizerOptions& optimizer);

/// A part of a tensor: as doubles, a whole one would take several times its memory.
struct Piece {
  int64_t first = 0, count = 0;
};
/// Calls body(piece) for the pieces of a tensor, in order.
template <typename Body>
void for_pieces(int64_t elements, Body&& body) {
  constexpr int64_t kPiece = int64_t{1} << 16;
  for (int64_t first = 0; first < elements; first += kPiece)
    body(Piece{first, std::min(kPiece, elements - first)});
}
std::vector<double> to_doubles(const Tensor& tensor, Piece piece);

/// One buffer before a step, and after it in each variant. `previous` is the reference's after the
/// batch before, of the same group; null for the first.
struct StepTensors {
  const Tensor& before;
  const Tensor &reference, &candidate, &oracle;
  const Tensor* previous;
  const Tensor* control;  ///< The oracle's from a rounded start; null where there is none.
};
/// Adds one batch to its group. What is not finite counts as an infinite error.
void add_batch(GroupSums& sums, const Compared& compared, const StepTensors& tensors);

}  // namespace ridge
