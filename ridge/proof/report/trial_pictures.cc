#include "ridge/proof/report/trial_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/html/charts.h"
#include "ridge/base/html/svg_writer.h"
#include "ridge/proof/trial_text.h"

namespace ridge {
namespace {

// The scale has at least these, and never more than the limits: one wild interval must not press
// all others into a point.
constexpr double kLeastLow = 0.95, kLeastHigh = 1.1, kLowLimit = 0.25, kHighLimit = 8;

constexpr double kHeight = 22, kMiddle = kHeight / 2, kBand = 12, kPoint = 4, kWhisker = 4;

// The ends of whiskers have a width, too.
constexpr double kFrom = 1, kTo = 99;

// Ticks are at least so many per cents apart: their numbers side by side fit into a narrow page.
constexpr double kTickRoom = 16;
// The roundest first: each takes the space of those after it.
constexpr double kTicks[] = {2,   0.5, 4,   8,   0.25, 1.5, 1.2, 0.8,  1.1,  0.9,
                             1.3, 3,   0.7, 0.6, 6,    2.5, 0.3, 1.05, 0.95, 1.4};

bool is_speed(double speed) { return std::isfinite(speed) && speed > 0; }

bool has_interval(const TrialRecord& record) {
  return record.measured && is_speed(record.measured->low) && is_speed(record.measured->mid) &&
         is_speed(record.measured->high);
}

bool has_range(const TrialRecord& record) {
  return record.predicted && is_speed(record.predicted->low) && is_speed(record.predicted->high);
}

std::string_view ink_of(TrialVerdict verdict) {
  switch (verdict) {
    case TrialVerdict::kKept:
      return ink::kGood;
    case TrialVerdict::kGuardFailed:
    case TrialVerdict::kFailed:
      return ink::kBad;
    default:
      return ink::kText;
  }
}

}  // namespace

TrialScale::TrialScale(std::span<const TrialRecord* const> trials)
    : low_(std::log(kLeastLow)), high_(std::log(kLeastHigh)) {
  for (const TrialRecord* trial : trials) {
    if (has_interval(*trial)) reach(trial->measured->low), reach(trial->measured->high);
    if (has_range(*trial)) reach(trial->predicted->low), reach(trial->predicted->high);
    if (const auto bound = telling_bound(*trial); bound && is_speed(*bound)) reach(*bound);
  }
}

void TrialScale::reach(double speed) {
  const double position = std::log(std::clamp(speed, kLowLimit, kHighLimit));
  low_ = std::min(low_, position);
  high_ = std::max(high_, position);
}

double TrialScale::at(double speed) const {
  const double share = (std::log(speed) - low_) / (high_ - low_);
  return kFrom + (kTo - kFrom) * std::clamp(share, 0.0, 1.0);
}

std::vector<double> TrialScale::ticks() const {
  std::vector<double> ticks = {1};
  for (double tick : kTicks) {
    const bool is_within = std::log(tick) >= low_ && std::log(tick) <= high_;
    const bool has_room = std::ranges::all_of(
        ticks, [&](double other) { return std::abs(at(tick) - at(other)) >= kTickRoom; });
    if (is_within && has_room) ticks.push_back(tick);
  }
  std::ranges::sort(ticks);
  return ticks;
}

std::string trial_axis(const TrialScale& scale) {
  SvgWriter svg(kHeight - 4, "times as fast as before the change");
  for (double tick : scale.ticks()) {
    draw_tick(svg, scale.at(tick), 11, fmt::format("{}\u00d7", readable_number(tick)));
    svg.line({scale.at(tick), 14}, {scale.at(tick), kHeight - 4}, ink::kMuted);
  }
  return svg.finish();
}

std::string trial_picture(const TrialRecord& record, const TrialScale& scale) {
  const std::optional<double> bound = telling_bound(record);
  const bool has_bound = !record.predicted && bound && is_speed(*bound);
  if (!has_interval(record) && !has_range(record) && !has_bound) return {};
  SvgWriter svg(
      kHeight,
      fmt::format("measured {}, predicted {}", measured_text(record), predicted_text(record)));
  for (double tick : scale.ticks())
    svg.line({scale.at(tick), 0}, {scale.at(tick), kHeight}, tick == 1 ? ink::kMuted : ink::kGrid);
  if (has_range(record)) {
    const double left = scale.at(record.predicted->low), right = scale.at(record.predicted->high);
    svg.begin_group("predicted " + predicted_text(record));
    svg.rect(left, kMiddle - kBand / 2, std::max(0.4, right - left), kBand, ink::kBand, 2);
    svg.end_group();
  } else if (has_bound) {
    const double at = scale.at(*bound);
    svg.begin_group(predicted_text(record));
    svg.line({at, kMiddle - kBand / 2}, {at, kMiddle + kBand / 2}, ink::series(0), 2);
    svg.end_group();
  }
  if (has_interval(record)) {
    const double low = scale.at(record.measured->low), high = scale.at(record.measured->high);
    const std::string_view ink = ink_of(record.verdict);
    svg.begin_group("measured " + measured_text(record));
    svg.line({low, kMiddle}, {high, kMiddle}, ink, 1.5);
    for (double end : {low, high})
      svg.line({end, kMiddle - kWhisker}, {end, kMiddle + kWhisker}, ink, 1.5);
    svg.circle({scale.at(record.measured->mid), kMiddle}, kPoint, ink);
    svg.end_group();
  }
  return svg.finish();
}

}  // namespace ridge
