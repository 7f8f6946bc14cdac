// Errors and times of single sites.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/compress/drop.h"
#include "ridge/compress/site_errors.h"
#include "ridge/compress/site_times.h"
#include "ridge/compress/static_form.h"
#include "tests/compress/small_models.h"

namespace ridge::test {
namespace {

using namespace compress;
using testing::Contains;
using testing::Not;

QuantizedForm form_of(const EditableModel& model, QuantizeMethod method, const QuantizeData& data) {
  QuantizedForm form{.method = method, .sites = find_sites(model).sites};
  if (method == QuantizeMethod::kDynamic) return form;
  WantedActivations wanted;
  std::set<std::string> all;
  for (const compress::Site& site : form.sites) all.insert(site.output);
  for (const auto& [value, from] : points_of(model, form.sites, all).range_of) {
    wanted[value];
    wanted[from];
  }
  form.scales = scales_of(calibrate(model, data.samples.samples, wanted), form.ranges);
  return form;
}

// Each site alone costs the same by its switch as in a model that is written for it.
TEST(SiteErrors, AreThoseOfModelsWithOneSiteInBytes) {
  for (const bool is_conv : {true, false}) {
    const EditableModel model = editable(model_bytes(is_conv ? conv_parts() : mlp_parts()));
    const QuantizeData data = normal_data(is_conv ? Shape{1, 3, 8, 8} : Shape{1, 16}, 4);
    const std::vector<NamedTensors>& samples = data.samples.samples;
    const SampleOutputs reference = outputs_on(model, samples);
    for (const QuantizeMethod method : {QuantizeMethod::kStatic, QuantizeMethod::kDynamic}) {
      const QuantizedForm form = form_of(model, method, data);
      size_t asked = 0;
      const std::vector<double> errors = site_errors(
          with_switches(model, form), form.sites.size(), samples, reference, [&](size_t i) {
            EXPECT_EQ(i, asked++);
          });
      ASSERT_EQ(errors.size(), form.sites.size());
      for (size_t i = 0; i < errors.size(); ++i) {
        const compress::Site& site = form.sites[i];
        const EditableModel alone = in_form(model, form, {site.output});
        const double error = error_power(reference, outputs_on(alone, samples));
        // Sums of floats in another order move a byte of the next layer now and then.
        EXPECT_NEAR(errors[i], error, 1e-3 * error + 1e-11) << site.name;
        const bool stays = method == QuantizeMethod::kDynamic && site.is_conv();
        EXPECT_EQ(error < 1e-11, stays) << site.name;
      }
    }
  }
}

TEST(SiteTimes, AreOfEachSiteBetweenItsNeighbours) {
  const EditableModel model = editable(model_bytes(conv_parts()));
  const QuantizeData data = normal_data({1, 3, 8, 8}, 2);
  const QuantizedForm form = form_of(model, QuantizeMethod::kStatic, data);
  std::set<std::string> values, outputs;
  for (const compress::Site& site : form.sites) {
    values.insert({site.input, site.output});
    outputs.insert(site.output);
  }
  // The norm between the first convolution and its pooling is not folded here: floats pass.
  const std::set<std::string> passed = points_of(model, form.sites, outputs).passed;
  EXPECT_THAT(passed, testing::ElementsAre("c2", "c3", "flat", "mean", "r2", "r3"));
  const std::map<std::string, SiteTime> times =
      time_sites(model, form, types_of(model, data.samples.samples[0], values));
  ASSERT_EQ(times.size(), 4u);
  for (const auto& [output, time] : times) {
    EXPECT_GT(time.as_it_is, 0) << output;
    EXPECT_GT(time.in_bytes, 0) << output;
  }
}

// A slice keeps the constants that its nodes read, and gives what the whole gives.
TEST(EditableModel, SliceIsAModelOfItsOwn) {
  const EditableModel model = editable(model_bytes(mlp_parts()));
  const QuantizeData data = normal_data({1, 16}, 1);
  const NamedTensors& sample = data.samples.samples[0];
  DataSpec spec{"x", DType::kF32, {1, 16}};
  const EditableModel part = model.slice({model.nodes()[0], model.nodes()[1]}, {spec});
  EXPECT_EQ(part.constant("w2"), nullptr);
  ASSERT_NE(part.constant("w1"), nullptr);
  const Tensor r1 = SampleRunner(part, sample, {"r1"}).run(sample).at("r1");
  EXPECT_TRUE(r1.same_bits(SampleRunner(model, sample, {"r1"}).run(sample).at("r1")));
}

}  // namespace
}  // namespace ridge::test
