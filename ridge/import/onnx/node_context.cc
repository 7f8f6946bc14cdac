#include "ridge/import/onnx/node_context.h"

#include <algorithm>

#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::onnx {

NodeContext::NodeContext(ImportContext& import,
                         const NodeProto& proto,
                         std::vector<DatumPtr> inputs,
                         Scope& scope,
                         Graph& target)
    : import_(import),
      proto_(proto),
      inputs_(std::move(inputs)),
      scope_(scope),
      target_(target),
      results_(proto.outputs.size()) {
  const auto found = scope.opsets->find(proto.domain);
  opset_ = found == scope.opsets->end() ? 1 : found->second;
}

const DatumPtr& NodeContext::datum(size_t i) const {
  check(has(i), "input {} is missing", i);
  return inputs_[i];
}

const Known* NodeContext::known(size_t i) const {
  return has(i) && inputs_[i]->known ? &*inputs_[i]->known : nullptr;
}

Value NodeContext::value(size_t i) const {
  Datum& input = *datum(i);
  if (!is_folding()) return import_.value(input);
  const auto placed = in_target_.find(i);
  if (placed != in_target_.end()) return placed->second;
  check_internal(input.known.has_value(), "an input of a folded node is not known");
  check(!input.known->is_empty(), "'{}' has no elements", input.name);
  const std::string name = fmt::format("{}", i);
  const Value value = ridge::input(target_, name, input.known->type());
  folded_inputs_.emplace(name, input.known->tensor());
  in_target_.emplace(i, value);
  return value;
}

Value NodeContext::image(size_t i) const {
  check(rank(i) == 4, "input {} has {} dimensions; expected 4", i, rank(i));
  return is_folding() ? transpose(value(i), {0, 2, 3, 1}) : import_.image(*datum(i));
}

bool NodeContext::is_image(size_t i) const {
  if (!has(i) || inputs_[i]->value || inputs_[i]->known) return false;
  return inputs_[i]->image || inputs_[i]->convolution != nullptr;
}

std::vector<int64_t> NodeContext::integers(size_t i, std::string_view what) const {
  const Known* values = known(i);
  check(values != nullptr, "its {} is data of a run", what);
  return values->integers();
}

double NodeContext::scalar(size_t i, std::string_view what) const {
  const Known* values = known(i);
  check(values != nullptr, "its {} is data of a run", what);
  check(values->elements() == 1, "its {} has {} elements", what, values->elements());
  return values->at(0);
}

int64_t NodeContext::whole(size_t i, std::string_view what) const {
  const std::vector<int64_t> values = integers(i, what);
  check(values.size() == 1, "its {} has {} elements", what, values.size());
  return values[0];
}

Value NodeContext::transposed(size_t i, const std::vector<int64_t>& perm) const {
  if (known(i) == nullptr || is_folding()) return transpose(value(i), perm);
  return import_.moved(*datum(i), perm);
}

Value NodeContext::place(const Known& known, std::string_view what) const {
  if (!is_folding()) return import_.stored(known, fmt::format("{}:{}", result_name(0), what));
  const std::string name = fmt::format("{}{}", what, folded_inputs_.size());
  folded_inputs_.emplace(name, known.tensor());
  return ridge::input(target_, name, known.type());
}

const Attribute* NodeContext::find(std::string_view name) const {
  const auto is_named = [&](const Attribute& a) { return a.name == name; };
  const auto found = std::find_if(proto_.attributes.begin(), proto_.attributes.end(), is_named);
  if (found == proto_.attributes.end()) return nullptr;
  if (found->reference.empty()) return &*found;
  const auto given = scope_.attributes.find(found->reference);
  return given == scope_.attributes.end() ? nullptr : given->second;
}

const Attribute& NodeContext::typed(const Attribute& attribute, Attribute::Type type) const {
  const auto number = static_cast<int64_t>(type);
  check(attribute.type == number || attribute.type == 0,
        "its attribute '{}' has type {}; expected {}",
        attribute.name,
        attribute.type,
        number);
  return attribute;
}

int64_t NodeContext::integer(std::string_view name, int64_t fallback) const {
  const Attribute* found = find(name);
  return found == nullptr ? fallback : typed(*found, Attribute::Type::kInt).integer;
}

int64_t NodeContext::integer(std::string_view name) const {
  check(has_attribute(name), "its attribute '{}' is missing", name);
  return integer(name, 0);
}

double NodeContext::number(std::string_view name, double fallback) const {
  const Attribute* found = find(name);
  if (found == nullptr) return fallback;
  return static_cast<double>(typed(*found, Attribute::Type::kFloat).number);
}

std::string NodeContext::text(std::string_view name, std::string_view fallback) const {
  const Attribute* found = find(name);
  if (found == nullptr) return std::string(fallback);
  const std::string& text = typed(*found, Attribute::Type::kString).text;
  check(is_printable(text), "its attribute '{}' is no text", name);
  return text;
}

std::vector<int64_t> NodeContext::list(std::string_view name, std::vector<int64_t> fallback) const {
  const Attribute* found = find(name);
  return found == nullptr ? fallback : typed(*found, Attribute::Type::kInts).integers;
}

std::vector<int64_t> NodeContext::list_or_input(std::string_view name,
                                                size_t input,
                                                std::vector<int64_t> fallback) const {
  if (has_attribute(name)) return list(name);
  return has(input) ? integers(input, name) : fallback;
}

std::string NodeContext::result_name(size_t i) const {
  return i < outputs() ? proto_.outputs[i] : std::string();
}

void NodeContext::give(size_t i, DatumPtr datum) {
  if (i < results_.size()) results_[i] = std::move(datum);
}
void NodeContext::give(size_t i, Value value) { give(i, make_datum(result_name(i), value)); }
void NodeContext::give(size_t i, Known known) {
  give(i, make_datum(result_name(i), std::move(known)));
}
void NodeContext::give_image(size_t i, Value image) {
  if (is_folding()) return give(i, transpose(image, {0, 3, 1, 2}));
  give(i, make_image_datum(result_name(i), image));
}

}  // namespace ridge::onnx
