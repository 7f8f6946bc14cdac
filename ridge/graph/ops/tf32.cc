#include "ridge/graph/ops/tf32.h"

#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/matmul.h"

namespace ridge {
namespace {

// Calls `body` with the op as the class that it is, and gives what that gives; `otherwise` for a
// class without the field.
template <typename Result, typename Body>
Result with_class(const Op& op, Result otherwise, const Body& body) {
  if (const auto* product = dynamic_cast<const MatMul*>(&op)) return body(*product);
  if (const auto* forward = dynamic_cast<const Conv2d*>(&op)) return body(*forward);
  if (const auto* grad_input = dynamic_cast<const Conv2dGradInput*>(&op)) return body(*grad_input);
  if (const auto* grad_weight = dynamic_cast<const Conv2dGradWeight*>(&op))
    return body(*grad_weight);
  return otherwise;
}

}  // namespace

bool is_in_tf32(const Op& op) {
  return with_class(op, false, [](const auto& known) { return known.tf32; });
}

std::shared_ptr<const Op> in_tf32(const Op& op) {
  using Result = std::shared_ptr<const Op>;
  return with_class(op, Result(), []<typename T>(const T& known) -> Result {
    if constexpr (requires { known.round_to; })
      if (known.round_to != DType::kF32) return nullptr;
    auto copy = std::make_shared<T>(known);
    copy->tf32 = true;
    return copy;
  });
}

}  // namespace ridge
