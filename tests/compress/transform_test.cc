// Norms that are folded, channels that are equalized, and where activations become bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/compress/calibration.h"
#include "ridge/compress/drop.h"
#include "ridge/compress/equalize.h"
#include "ridge/compress/fold_norms.h"
#include "ridge/compress/points.h"
#include "tests/compress/small_models.h"

namespace ridge::test {
namespace {

using namespace compress;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

SampleOutputs outputs_of(const EditableModel& model, const QuantizeData& data) {
  return outputs_on(model, data.samples.samples);
}

TEST(FoldNorms, KeepsTheFunction) {
  const QuantizeData data = normal_data({2, 3, 8, 8}, 3);
  const EditableModel model = editable(model_bytes(conv_parts()));
  EditableModel folded = model;
  EXPECT_EQ(fold_norms(folded), 1);
  EXPECT_THAT(ops_of(folded), Not(Contains("BatchNormalization")));
  EXPECT_EQ(folded.constant("norm_scale"), nullptr);
  EXPECT_EQ(folded.nodes()[0].proto.name, "first");
  EXPECT_EQ(folded.nodes()[0].proto.outputs, std::vector<std::string>{"n1"});
  EXPECT_LT(error_power(outputs_of(model, data), outputs_of(folded, data)), 1e-12);
  EXPECT_EQ(fold_norms(folded), 0);
}

TEST(FoldNorms, LeavesAConvolutionThatOthersRead) {
  GraphParts parts = conv_parts();
  parts.outputs.push_back(value_bytes("c1", kFloat, {"N", 8, 8, 8}));
  EditableModel model = editable(model_bytes(parts));
  EXPECT_EQ(fold_norms(model), 0);
  parts = conv_parts();
  parts.nodes[1] = node_bytes("BatchNormalization",
                              {"c1", "norm_scale", "norm_shift", "x", "norm_variance"},
                              {"n1"});  // its mean is no constant
  model = editable(model_bytes(parts));
  EXPECT_EQ(fold_norms(model), 0);
}

// Three convolutions in a chain, the middle one depthwise, with channels of very different sizes.
GraphParts uneven_chain() {
  std::mt19937 random(11);
  GraphParts parts;
  const auto uneven = [&](const char* name, const std::vector<int64_t>& dims) {
    std::vector<float> numbers = normal_numbers(random, count_of(dims), 0.4);
    const auto each = static_cast<int64_t>(numbers.size()) / dims[0];
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] *= std::exp2f(static_cast<float>(static_cast<int64_t>(i) / each % 9 - 4));
    parts.initializers.push_back(floats_bytes(name, dims, numbers));
  };
  uneven("w1", {8, 3, 1, 1});
  uneven("b1", {8});
  uneven("w2", {8, 1, 3, 3});
  uneven("w3", {4, 8, 1, 1});
  parts.nodes = {node_bytes("Conv", {"x", "w1", "b1"}, {"c1"}),
                 node_bytes("Relu", {"c1"}, {"r1"}),
                 node_bytes("Conv",
                            {"r1", "w2"},
                            {"c2"},
                            {ints_attribute("pads", {1, 1, 1, 1}), int_attribute("group", 8)}),
                 node_bytes("Conv", {"c2", "w3"}, {"y"})};
  parts.inputs = {value_bytes("x", kFloat, {"N", 3, 6, 6})};
  parts.outputs = {value_bytes("y", kFloat, {"N", 4, 6, 6})};
  return parts;
}

// The largest over the least of the largest magnitudes of channels along the first axis.
double spread_of(const EditableModel& model, size_t node) {
  const std::string name = model.nodes()[node].proto.inputs[1];
  const Tensor weights = model.elements(*model.constant(name)).tensor();
  const int64_t each = weights.elements() / weights.type().shape[0];
  std::vector<double> largest(static_cast<size_t>(weights.type().shape[0]));
  for (int64_t i = 0; i < weights.elements(); ++i) {
    double& of = largest[static_cast<size_t>(i / each)];
    of = std::max(of, std::abs(weights.at(i)));
  }
  const auto [least, most] = std::minmax_element(largest.begin(), largest.end());
  return *most / *least;
}

TEST(Equalize, KeepsTheBitsOfTheFunction) {
  const QuantizeData data = normal_data({2, 3, 6, 6}, 3);
  const EditableModel model = editable(model_bytes(uneven_chain()));
  EditableModel equal = model;
  EXPECT_EQ(equalize(equal), 2);
  EXPECT_LT(spread_of(equal, 2), spread_of(model, 2) / 2);
  // Powers of two move no digit, whatever the order of sums.
  EXPECT_TRUE(outputs_of(model, data)[0].at("y").same_bits(outputs_of(equal, data)[0].at("y")));
  EXPECT_EQ(equalize(equal), 0);
}

TEST(Equalize, LeavesWhatOthersRead) {
  GraphParts parts = uneven_chain();
  parts.outputs.push_back(value_bytes("r1", kFloat, {"N", 8, 6, 6}));
  EditableModel model = editable(model_bytes(parts));
  EXPECT_EQ(equalize(model), 1);  // of the second and the third alone
}

std::vector<std::string> values_of(const QuantizedPoints& points) {
  std::vector<std::string> values;
  for (const auto& [value, from] : points.range_of) values.push_back(value);
  return values;
}

TEST(Points, CarryBytesThroughPoolingsAndResiduals) {
  EditableModel model = editable(model_bytes(conv_parts()));
  fold_norms(model);
  const std::vector<compress::Site> sites = find_sites(model).sites;
  ASSERT_EQ(sites.size(), 4u);
  const QuantizedPoints all = points_of(model, sites, {"n1", "c2", "c3", "y"});
  EXPECT_THAT(values_of(all), ElementsAre("c3", "flat", "mean", "p1", "r1", "r2", "r3", "x"));
  EXPECT_EQ(all.range_of.at("p1"), "r1");      // the largest of some
  EXPECT_EQ(all.range_of.at("flat"), "mean");  // the same elements
  EXPECT_EQ(all.range_of.at("mean"), "mean");  // averages are others
  // A product alone needs its input.
  EXPECT_THAT(values_of(points_of(model, sites, {"y"})), ElementsAre("flat"));
  EXPECT_THAT(values_of(points_of(model, sites, {"c2"})), ElementsAre("p1"));
}

TEST(Points, InputsOfAConcatHaveTheScaleOfItsResult) {
  std::mt19937 random(5);
  GraphParts parts;
  parts.initializers = {random_tensor(random, "w1", {4, 3, 1, 1}, 0.5),
                        random_tensor(random, "w2", {4, 7, 1, 1}, 0.5),
                        floats_bytes("sizes", {4}, {1, 1, 2, 2})};
  parts.nodes = {node_bytes("Conv", {"x", "w1"}, {"c1"}),
                 node_bytes("Concat", {"c1", "x"}, {"both"}, {int_attribute("axis", 1)}),
                 node_bytes("Resize", {"both", "", "sizes"}, {"large"}),
                 node_bytes("Relu", {"large"}, {"r"}),
                 node_bytes("Conv", {"r", "w2"}, {"y"})};
  parts.inputs = {value_bytes("x", kFloat, {"N", 3, 4, 4})};
  parts.outputs = {value_bytes("y", kFloat, {"N", 4, 8, 8})};
  const EditableModel model = editable(model_bytes(parts));
  const QuantizedPoints points = points_of(model, find_sites(model).sites, {"c1", "y"});
  EXPECT_THAT(values_of(points), ElementsAre("both", "c1", "r", "x"));
  EXPECT_EQ(points.range_of.at("r"), "r");
  EXPECT_EQ(points.range_of.at("c1"), "both");
  EXPECT_EQ(points.range_of.at("x"), "x");  // a convolution reads it, too
}

TEST(Points, LeaveTheResidualsOfAttention) {
  const EditableModel model = editable(model_bytes(attention_parts()));
  const SiteList list = find_sites(model);
  std::set<std::string> all;
  for (const compress::Site& site : list.sites) all.insert(site.output);
  EXPECT_THAT(values_of(points_of(model, list.sites, all)), ElementsAre("mixed", "x"));
  ASSERT_EQ(list.kept.size(), 2u);
  EXPECT_EQ(list.kept[0].name, "scores");
  EXPECT_EQ(list.kept[0].reason, "its weights are no constant");
}

}  // namespace
}  // namespace ridge::test
