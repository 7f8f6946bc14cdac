#include "ridge/import/onnx/ops/each_element.h"

#include <algorithm>

#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::onnx {
namespace {

const std::vector<int64_t> kToImage{0, 2, 3, 1};

// An input of at most four dimensions in the order of an image's.
Value image_form(NodeContext& n, size_t i) {
  const int64_t rank = n.rank(i);
  if (rank == 4) return n.image(i);
  if (rank == 0) return n.value(i);
  Shape shape(static_cast<size_t>(4 - rank), 1);
  shape.insert(shape.end(), n.shape(i).begin(), n.shape(i).end());
  if (const Known* known = n.known(i))
    return n.import().stored(known->reshaped(shape).transposed(kToImage),
                             n.datum(i)->name + ":nhwc");
  return transpose(reshape(n.value(i), shape), kToImage);
}

bool prefers_images(const NodeContext& n) {
  bool any = false;
  for (size_t i = 0; i < n.inputs(); ++i) {
    any = any || n.is_image(i);
    if (n.has(i) && n.rank(i) > 4) return false;
  }
  return any;
}

}  // namespace

void each_element(NodeContext& n, const std::function<Value(const std::vector<Value>&)>& apply) {
  check(n.inputs() > 0, "it has no inputs");
  const bool as_image = prefers_images(n);
  std::vector<Value> values;
  for (size_t i = 0; i < n.inputs(); ++i)
    values.push_back(as_image ? image_form(n, i) : n.value(i));
  const Value result = apply(values);
  as_image ? n.give_image(0, result) : n.give(result);
}

void each_element(NodeContext& n, const std::function<Value(Value)>& apply) {
  if (n.is_image(0)) return n.give_image(0, apply(n.image(0)));
  n.give(apply(n.value(0)));
}

Value scalar_or(NodeContext& n, size_t input, Value like, double fallback) {
  if (!n.has(input)) return constant(n.graph(), {like.dtype(), {}}, fallback);
  check(n.datum(input)->dtype == like.dtype(), "input {} has another dtype", input);
  const Value value = n.value(input);
  check(value.type().elements() == 1, "input {} is no scalar", input);
  return reshape(value, {});
}

}  // namespace ridge::onnx
