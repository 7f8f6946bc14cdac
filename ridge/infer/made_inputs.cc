#include "ridge/infer/made_inputs.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "ridge/base/hash.h"
#include "ridge/base/normals.h"
#include "ridge/base/philox.h"
#include "ridge/graph/model_source.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/shape.h"

namespace ridge {
namespace {

// Values whose elements are elements of one input.
class Followed {
 public:
  explicit Followed(const Node& input) { add(input); }

  bool has(const Node& node, size_t i) const {
    return i < node.inputs.size() && ids_.contains({node.inputs[i].node->id, node.inputs[i].index});
  }
  void add(const Node& node) {
    for (size_t i = 0; i < node.outputs.size(); ++i) ids_.emplace(node.id, static_cast<int>(i));
  }

 private:
  std::set<std::pair<int, int>> ids_;
};

bool moves_elements(const Node& node) {
  if (node.is<Cast>()) return is_integer(node.outputs[0].dtype);
  return node.is<Reshape>() || node.is<Transpose>() || node.is<Broadcast>() || node.is<Slice>() ||
         node.is<Copy>() || node.is<Concat>();
}

// A choice is followed too: indices that count from the end are moved to the front by one.
bool keeps_elements(const Node& node, const Followed& followed) {
  if (node.is<Where>()) return followed.has(node, 1) || followed.has(node, 2);
  if (!moves_elements(node)) return false;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (followed.has(node, i)) return true;
  return false;
}

// The rows that a node looks up by its second input; nothing for any other node.
std::optional<int64_t> rows_of(const Node& node) {
  if (node.is<Gather>()) return node.inputs[0].dim(node.op_as<Gather>().axis);
  if (node.is<Pick>()) return node.op_as<Pick>().columns_of(node.inputs[0].dim(-1));
  if (node.is<ScatterAdd>()) return node.op_as<ScatterAdd>().size;
  return std::nullopt;
}

void fill_floats(const RngKey& key, Tensor& tensor) {
  std::vector<float> numbers(static_cast<size_t>(tensor.elements()));
  fill_normals(key, numbers);
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, static_cast<double>(numbers[static_cast<size_t>(i)]));
}

template <typename T>
void fill_integers(const RngKey& key, int64_t bound, Tensor& tensor) {
  if constexpr (!is_float_type<T>) {
    const auto most = static_cast<uint64_t>(std::numeric_limits<T>::max());
    const uint64_t numbers = std::min<uint64_t>(static_cast<uint64_t>(bound) - 1, most) + 1;
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.span<T>()[static_cast<size_t>(i)] =
          static_cast<T>(random_u32(key, static_cast<uint64_t>(i)) % numbers);
  }
}

}  // namespace

std::optional<int64_t> index_bound(const Graph& graph, const std::string& input) {
  const Node* const given = graph.find_input(input);
  if (given == nullptr) return std::nullopt;
  Followed followed(*given);
  std::optional<int64_t> bound;
  for (const auto& node : graph.nodes()) {
    if (keeps_elements(*node, followed)) followed.add(*node);
    const std::optional<int64_t> rows = rows_of(*node);
    if (rows && followed.has(*node, 1)) bound = std::min(bound.value_or(*rows), *rows);
  }
  return bound;
}

MadeInputs make_inputs(const ModelSource& source, const Binding& binding, uint64_t seed) {
  const ProgramGraphs graphs = source.bind(binding);
  MadeInputs made;
  for (const DataSpec& input : source.inputs()) {
    Tensor tensor(bound_type(input, binding));
    const RngKey key{.seed = seed, .step = 0, .site = hash64(input.name)};
    if (is_float(input.dtype)) {
      fill_floats(key, tensor);
    } else {
      std::optional<int64_t> bound;
      if (is_integer(input.dtype))
        bound = made.bounds[input.name] = index_bound(graphs.entries.at(0), input.name);
      dispatch(input.dtype,
               [&]<typename T>(TypeTag<T>) { fill_integers<T>(key, bound.value_or(2), tensor); });
    }
    made.tensors.emplace(input.name, std::move(tensor));
  }
  return made;
}

}  // namespace ridge
