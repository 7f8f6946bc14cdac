// Predictions and measurements of all trials, drawn on one scale.
#include "ridge/proof/report/trial_pictures.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>

#include "tests/tune/sample_reports.h"

namespace ridge {
namespace {

/// The first value of an attribute of elements of a kind, in per cent.
double attribute(const std::string& svg, const std::string& element, const std::string& name) {
  std::smatch match;
  const std::regex pattern("<" + element + "[^>]* " + name + "=\"([-0-9.]+)%\"");
  return std::regex_search(svg, match, pattern) ? std::stod(match[1]) : -1;
}

TrialRecord trial(SpeedEstimate measured, std::optional<SpeedRange> predicted) {
  TrialRecord record = test::kept_trial(1);
  record.measured = measured;
  record.predicted = predicted;
  record.ceiling.reset();
  return record;
}

// Equal factors are equally far apart, and what lies on the scale is where its number says.
TEST(TrialPictures, ShareALogarithmicScale) {
  const TrialRecord a = trial({0.5, 1, 2, 0.95}, SpeedRange{1, 4}), b = trial({1, 2, 4, 0.95}, {});
  const std::vector<const TrialRecord*> both = {&a, &b};
  const TrialScale scale(both);
  EXPECT_NEAR(scale.at(1) - scale.at(0.5), scale.at(4) - scale.at(2), 1e-9);
  const std::string first = trial_picture(a, scale), second = trial_picture(b, scale);
  EXPECT_NEAR(attribute(first, "rect", "x"), scale.at(1), 0.01);
  EXPECT_NEAR(attribute(first, "rect", "width"), scale.at(4) - scale.at(1), 0.01);
  EXPECT_NEAR(attribute(first, "circle", "cx"), scale.at(1), 0.01);
  EXPECT_NEAR(attribute(second, "circle", "cx"), scale.at(2), 0.01);
  EXPECT_EQ(second.find("<rect"), std::string::npos);  // nothing was predicted
  const std::string axis = trial_axis(scale);
  for (const char* tick : {">0.5\u00d7<", ">1\u00d7<", ">2\u00d7<", ">4\u00d7<"})
    EXPECT_NE(axis.find(tick), std::string::npos) << tick << axis;
}

TEST(TrialPictures, OneIsAlwaysOnTheScale) {
  for (const double gain : {1.01, 1.2, 1.5, 3.0, 7.0, 0.3}) {
    const TrialRecord record = trial({gain * 0.99, gain, gain * 1.01, 0.95}, {});
    const std::vector<const TrialRecord*> one = {&record};
    const std::vector<double> ticks = TrialScale(one).ticks();
    EXPECT_NE(std::find(ticks.begin(), ticks.end(), 1), ticks.end()) << gain;
    EXPECT_GE(ticks.size(), 2u) << gain;
    EXPECT_LE(ticks.size(), 8u) << gain;
  }
}

// A mark stands for a bound that tells something; a far one would press all others together.
TEST(TrialPictures, BoundsAreMarksWhereTheyTell) {
  TrialRecord record = test::untried_trial(1);
  const std::vector<const TrialRecord*> one = {&record};
  record.ceiling = 1.5;
  EXPECT_NE(trial_picture(record, TrialScale(one)).find("bound 1.50"), std::string::npos);
  const double wide = TrialScale(one).at(1.1);
  record.ceiling = 60;
  EXPECT_EQ(trial_picture(record, TrialScale(one)), "");
  EXPECT_GT(TrialScale(one).at(1.1), wide);
}

TEST(TrialPictures, StandWhateverWasMeasured) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const SpeedEstimate& odd : {SpeedEstimate{kNan, kNan, kNan, 0.95},
                                   SpeedEstimate{0, 0, 1e300, 0.95},
                                   SpeedEstimate{-1, 1, 2, 0.95}}) {
    const TrialRecord record = trial(odd, SpeedRange{kNan, 1});
    const std::vector<const TrialRecord*> one = {&record};
    EXPECT_EQ(trial_picture(record, TrialScale(one)), "");
  }
  const TrialRecord huge = trial({1e-300, 1, 1e300, 0.95}, {});
  const std::vector<const TrialRecord*> one = {&huge};
  EXPECT_NE(trial_picture(huge, TrialScale(one)), "");
}

}  // namespace
}  // namespace ridge
