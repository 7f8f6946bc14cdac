#include "ridge/compress/site_times.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/compress/calibration.h"
#include "ridge/compress/points.h"

namespace ridge::compress {
namespace {

// Enough for a least time that a disturbance of some milliseconds does not reach.
constexpr int kLeastRuns = 5, kMostRuns = 100;
constexpr int64_t kEnoughNs = 30'000'000;

/// A model that is timed: its inputs are zeros.
struct TimedModel {
  EditableModel model;
  NamedTensors inputs;
  std::vector<std::string> outputs;  ///< More than it has itself.
};

int64_t ns_of_run(SampleRunner& runner, const NamedTensors& inputs) {
  const int64_t start = now_ns();
  runner.run(inputs);
  return now_ns() - start;
}

SiteTime time_both(const TimedModel& as_it_is, const TimedModel& in_bytes) {
  SampleRunner a(as_it_is.model, as_it_is.inputs, as_it_is.outputs);
  SampleRunner b(in_bytes.model, in_bytes.inputs, in_bytes.outputs);
  a.run(as_it_is.inputs);
  b.run(in_bytes.inputs);
  int64_t least_a = std::numeric_limits<int64_t>::max(), least_b = least_a, total = 0;
  for (int i = 0; i < kMostRuns && (i < kLeastRuns || total < kEnoughNs); ++i) {
    const int64_t ns_a = ns_of_run(a, as_it_is.inputs), ns_b = ns_of_run(b, in_bytes.inputs);
    least_a = std::min(least_a, ns_a);
    least_b = std::min(least_b, ns_b);
    total += ns_a + ns_b;
  }
  return {static_cast<double>(least_a) * 1e-9, static_cast<double>(least_b) * 1e-9};
}

/// A site with what it reads and gives in a model where all sites are in bytes.
struct TimedSite {
  const Site& site;
  TensorType input, output;
  bool reads_bytes = false, gives_bytes = false;
};

// Conversions of a slice that have any scale: it changes no time.
class Conversions {
 public:
  explicit Conversions(EditableModel& model) : model_(model) {
    scale_ = model.new_name("a_scale");
    zero_ = model.new_name("a_zero_point");
    Tensor scale(TensorType{DType::kF32, {}});
    scale.set(0, 1);
    model.add_initializer(scale_, scale);
    model.add_initializer(zero_, Tensor(TensorType{DType::kU8, {}}));
  }

  EditableNode node(const char* op, const std::string& from, const std::string& to) {
    return made_node({.op = op,
                      .name = model_.new_name(to + "_conversion"),
                      .inputs = {from, scale_, zero_},
                      .outputs = {to}});
  }

 private:
  EditableModel& model_;
  std::string scale_, zero_;
};

const EditableNode& node_of(const EditableModel& model, const std::string& output) {
  for (const EditableNode& node : model.nodes())
    if (!node.proto.outputs.empty() && node.proto.outputs[0] == output) return node;
  throw InternalError(fmt::format("[time_sites] no node gives '{}'", output));
}

TimedModel timed(const EditableModel& whole,
                 std::vector<EditableNode> nodes,
                 const std::string& input,
                 const TensorType& type,
                 const std::string& output) {
  TimedModel result{.model = whole.slice(std::move(nodes), {sized_spec(input, type)}),
                    .inputs = {},
                    .outputs = {output}};
  result.inputs.emplace(input, Tensor(type));
  return result;
}

// The site as it is, between bytes where its neighbours are in bytes.
TimedModel site_as_it_is(const EditableModel& model, const TimedSite& of) {
  EditableModel whole = model;
  Conversions conversions(whole);
  std::vector<EditableNode> nodes = {node_of(model, of.site.output)};
  std::string input = of.site.input, output = of.site.output;
  TensorType type = of.input;
  if (of.reads_bytes) {
    input = whole.new_name(input + "_bytes");
    type.dtype = DType::kU8;
    nodes.insert(nodes.begin(), conversions.node("DequantizeLinear", input, of.site.input));
  }
  if (of.gives_bytes) {
    output = whole.new_name(output + "_bytes");
    nodes.push_back(conversions.node("QuantizeLinear", of.site.output, output));
  }
  return timed(whole, std::move(nodes), input, type, output);
}

TimedModel site_in_bytes(const EditableModel& model,
                         const QuantizedForm& form,
                         const TimedSite& of) {
  const DataSpec spec = sized_spec(of.site.input, of.input);
  const EditableModel alone = model.slice({node_of(model, of.site.output)}, {spec});
  QuantizedForm one = form;
  one.sites = {of.site};
  EditableModel whole = in_form(alone, one, {of.site.output});
  std::vector<EditableNode> nodes = whole.nodes();
  std::string input = of.site.input, output = of.site.output;
  TensorType type = of.input;
  if (of.reads_bytes) {
    const auto first = std::ranges::find_if(
        nodes, [](const EditableNode& node) { return node.proto.op == "QuantizeLinear"; });
    check_internal(first != nodes.end(), "[time_sites] '{}' is not in bytes", of.site.name);
    input = first->proto.outputs.at(0);
    type.dtype = DType::kU8;
    nodes.erase(first);
  }
  if (of.gives_bytes) {
    Conversions conversions(whole);
    output = whole.new_name(output + "_bytes");
    nodes.push_back(conversions.node("QuantizeLinear", of.site.output, output));
  }
  return timed(whole, std::move(nodes), input, type, output);
}

}  // namespace

std::map<std::string, SiteTime> time_sites(const EditableModel& model,
                                           const QuantizedForm& form,
                                           const std::map<std::string, TensorType>& types) {
  std::set<std::string> passed;
  if (form.method == QuantizeMethod::kStatic) {
    std::set<std::string> all;
    for (const Site& site : form.sites) all.insert(site.output);
    passed = points_of(model, form.sites, all).passed;
  }
  using Key = std::tuple<std::string, Shape, Shape, Shape, int64_t, bool, bool, bool>;
  std::map<Key, SiteTime> by_shape;
  std::map<std::string, SiteTime> times;
  for (const Site& site : form.sites) {
    const TimedSite of{.site = site,
                       .input = types.at(site.input),
                       .output = types.at(site.output),
                       .reads_bytes = passed.contains(site.input),
                       .gives_bytes = passed.contains(site.output)};
    const Key key{site.op,
                  of.input.shape,
                  of.output.shape,
                  model.constant(site.weights)->dims,
                  site.groups,
                  site.bias.empty(),
                  of.reads_bytes,
                  of.gives_bytes};
    const auto [at, is_new] = by_shape.try_emplace(key);
    if (is_new) at->second = time_both(site_as_it_is(model, of), site_in_bytes(model, form, of));
    times[site.output] = at->second;
  }
  return times;
}

SiteTime time_models(const EditableModel& as_it_is,
                     const EditableModel& in_bytes,
                     const NamedTensors& sample) {
  return time_both({as_it_is, sample, {}}, {in_bytes, sample, {}});
}

}  // namespace ridge::compress
