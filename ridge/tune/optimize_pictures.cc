#include "ridge/tune/optimize_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "ridge/base/charts.h"
#include "ridge/base/markup.h"
#include "ridge/base/svg_writer.h"
#include "ridge/tune/optimize_words.h"
#include "ridge/tune/trial_text.h"

namespace ridge {
namespace {

constexpr double kWidth = 812;  // of a report's column
constexpr double kRow = 26, kBar = 18, kFont = 12;
constexpr size_t kColours = 8;
constexpr size_t kMostDrawn = 5000;  // launches of a time-line

// Values from 0 on, to pixels.
struct Scale {
  double from = 0, to = 1, most = 1;
  double at(double value) const { return from + (to - from) * std::clamp(value / most, 0.0, 1.0); }
};

// Ticks with their numbers under a drawing that ends at `bottom`.
void draw_axis(SvgWriter& svg, const Scale& scale, double bottom, std::string_view unit) {
  for (double tick : linear_ticks(0, scale.most, 6)) {
    svg.line({scale.at(tick), 0}, {scale.at(tick), bottom}, ink::kGrid);
    svg.text({scale.at(tick), bottom + 16},
             fmt::format("{} {}", readable_number(tick), unit),
             {.anchor = TextAnchor::kMiddle, .ink = ink::kMuted});
  }
}

// One row of the waterfall: the bar from `begin` to `end`.
struct Fall {
  std::string label, text, tooltip;
  double begin = 0, end = 0;
  size_t series = 0;
  std::optional<std::pair<double, double>> interval{};
};

std::string amount(double value, bool in_ms) {
  return in_ms ? readable_number(value) + " ms" : fmt::format("{:.1f} %", 100 * value);
}

bool is_factor(double speed) { return speed > 1e-9 && speed < 1e9; }

std::vector<Fall> falls_of(const OptimizeSummary& summary, std::span<const TrialRecord> trials) {
  const bool in_ms = summary.baseline.step_ms > 0 && std::isfinite(summary.baseline.step_ms);
  const double start = in_ms ? summary.baseline.step_ms : 1;
  std::vector<Fall> falls = {{.label = "as it was",
                              .text = amount(start, in_ms),
                              .tooltip = "a step as it was: " + amount(start, in_ms),
                              .begin = 0,
                              .end = start,
                              .series = 7}};
  double now = start;
  for (const TrialRecord* step : kept_steps(trials)) {
    const TrialRecord& trial = *step;
    if (!is_factor(trial.measured->mid)) continue;
    const double next = now / trial.measured->mid;
    falls.push_back(
        {.label = shortened(trial.technique, 30),
         .text = measured_text(trial),
         .tooltip = fmt::format(
             "{}: {} to {}", plain_line(trial.change), amount(now, in_ms), amount(next, in_ms)),
         .begin = now,
         .end = next,
         .series = next <= now ? size_t{0} : size_t{1}});
    now = next;
  }
  const OptimizeClaim claim = claim_of(summary);
  if (!is_factor(claim.speedup) || !is_factor(claim.low) || !is_factor(claim.high)) return falls;
  const double result = start / claim.speedup;
  falls.push_back({.label = "as proven",
                   .text = fmt::format("{}, {}", amount(result, in_ms), claim_title(summary)),
                   .tooltip = claim_text(summary),
                   .begin = 0,
                   .end = result,
                   .series = 2,
                   .interval = {{start / claim.high, start / claim.low}}});
  return falls;
}

void draw_whisker(SvgWriter& svg, const Scale& scale, const Fall& fall, double y) {
  const double low = scale.at(fall.interval->first), high = scale.at(fall.interval->second);
  const double middle = y + kBar / 2;
  svg.line({low, middle}, {high, middle}, ink::kText, 1.25);
  for (double end : {low, high}) svg.line({end, middle - 4}, {end, middle + 4}, ink::kText, 1.25);
}

using BeforeAfter = std::array<double, 2>;

// Sums of what a name takes; the largest get colours of their own, the others share the last.
class Legend {
 public:
  explicit Legend(std::string_view unit) : unit_(unit) {}

  void add(const std::string& name, size_t variant, double value) {
    totals_[name][variant] += value;
  }

  // No name is added from here on.
  size_t colour(const std::string& name) {
    rank();
    return std::min(ranks_.at(name), kColours - 1);
  }

  // Draws names with colours and sums from `y` on, several to a line; returns the height they take.
  double draw(SvgWriter& svg, double y) {
    rank();
    double x = 0;
    const double top = y;
    for (size_t i = 0; i < std::min(names_.size(), kColours); ++i) {
      const std::string text = text_of(i);
      const double width = 38 + estimated_width(text, kFont);
      if (x > 0 && x + width > kWidth) x = 0, y += 20;
      svg.rect(x, y + 3, 12, 12, ink::series(i), 2);
      svg.text({x + 18, y + 13}, text);
      x += width;
    }
    return y + 20 - top;
  }

  double height() {
    SvgWriter scratch(kWidth, 1, "");
    return draw(scratch, 0);
  }

 private:
  void rank() {
    if (!ranks_.empty()) return;
    for (const auto& [name, total] : totals_) names_.push_back(name);
    std::sort(names_.begin(), names_.end(), [&](const std::string& a, const std::string& b) {
      const auto size = [&](const std::string& name) {
        return totals_[name][0] + totals_[name][1];
      };
      return std::pair(-size(a), a) < std::pair(-size(b), b);
    });
    for (size_t i = 0; i < names_.size(); ++i) ranks_[names_[i]] = i;
  }

  // "conv2d 12 \u2192 8.5 ms", the last with all that share its colour.
  std::string text_of(size_t i) {
    const bool is_rest = i == kColours - 1 && names_.size() > kColours;
    BeforeAfter sum{};
    for (size_t j = i; j < (is_rest ? names_.size() : i + 1); ++j)
      for (size_t variant : {0, 1}) sum[variant] += totals_[names_[j]][variant];
    return fmt::format(
        "{} {} \u2192 {} {}",
        is_rest ? fmt::format("{} others", names_.size() - i) : shortened(names_[i], 28),
        readable_number(sum[0]),
        readable_number(sum[1]),
        unit_);
  }

  std::string_view unit_;
  std::map<std::string, BeforeAfter> totals_;
  std::map<std::string, size_t> ranks_;
  std::vector<std::string> names_;
};

// Stretches of short launches are one name, however many each holds.
std::string name_of(const StepLaunch& launch) {
  return launch.name.ends_with(kShortOnes) ? "short ones" : launch.name;
}

// What can be drawn: finite, and not beyond what a page can hold.
StepTimeline drawable(const StepTimeline& timeline) {
  StepTimeline good = timeline;
  good.launches.clear();
  for (const StepLaunch& launch : timeline.launches)
    if (good.launches.size() < kMostDrawn && std::isfinite(launch.start_ms) &&
        std::isfinite(launch.duration_ms) && launch.start_ms >= 0 && launch.duration_ms >= 0)
      good.launches.push_back(launch);
  // The step ends after the last of what it launched.
  for (const StepLaunch& launch : good.launches)
    good.step_ms = std::fmax(good.step_ms, launch.start_ms + launch.duration_ms);
  return good;
}

// In the order of first appearance.
std::vector<std::string> rows_of(const StepTimeline& timeline) {
  std::vector<std::string> rows;
  for (const StepLaunch& launch : timeline.launches)
    if (std::find(rows.begin(), rows.end(), launch.row) == rows.end()) rows.push_back(launch.row);
  return rows;
}

// Draws steps one below the other.
class StepDrawing {
 public:
  StepDrawing(SvgWriter& svg, const Scale& scale, Legend& legend)
      : svg_(svg), scale_(scale), legend_(legend) {}

  void add(std::string_view title, const StepTimeline& timeline) {
    if (timeline.launches.empty()) {
      svg_.text({0, y_ + 14}, title, {.bold = true});
      svg_.text({scale_.from, y_ + kTitle + 13}, "not recorded", {.ink = ink::kMuted});
      y_ += kTitle + kRow;
      return;
    }
    svg_.text({0, y_ + 14},
              fmt::format("{}: {} ms", title, readable_number(timeline.step_ms)),
              {.bold = true});
    y_ += kTitle;
    const double top = y_;
    for (const std::string& row : rows_of(timeline)) {
      svg_.text({0, y_ + 13}, shortened(row, 16), {.ink = ink::kMuted});
      for (const StepLaunch& launch : timeline.launches)
        if (launch.row == row) add_launch(launch);
      y_ += kRow;
    }
    const double end = scale_.at(timeline.step_ms);
    svg_.line({end, top - 3}, {end, y_ - 5}, ink::kText, 1.25);
  }

  static double height(const StepTimeline& timeline) {
    return kTitle + kRow * static_cast<double>(std::max<size_t>(1, rows_of(timeline).size()));
  }

 private:
  static constexpr double kTitle = 22;

  void add_launch(const StepLaunch& launch) {
    const double left = scale_.at(launch.start_ms);
    const double right = scale_.at(launch.start_ms + launch.duration_ms);
    const std::string site =
        launch.site.empty() ? "" : fmt::format(" ({})", shortened(launch.site, 100));
    svg_.begin_group(fmt::format(
        "{}{}: {} ms", shortened(launch.name, 100), site, readable_number(launch.duration_ms)));
    svg_.rect(
        left, y_, std::max(0.4, right - left), kBar, ink::series(legend_.colour(name_of(launch))));
    svg_.end_group();
  }

  SvgWriter& svg_;
  const Scale& scale_;
  Legend& legend_;
  double y_ = 0;
};

double sum_of(const std::vector<MemoryShare>& shares) {
  double sum = 0;
  for (const MemoryShare& share : shares)
    sum += static_cast<double>(std::max<int64_t>(0, share.bytes));
  return sum;
}

}  // namespace

std::string waterfall(const OptimizeSummary& summary, std::span<const TrialRecord> trials) {
  const std::vector<Fall> falls = falls_of(summary, trials);
  double label_width = 0, text_width = 0, most = 0;
  for (const Fall& fall : falls) {
    label_width = std::max(label_width, estimated_width(fall.label, kFont));
    text_width = std::max(text_width, estimated_width(fall.text, kFont));
    most = std::max({most, fall.begin, fall.end, fall.interval ? fall.interval->second : 0});
  }
  const Scale scale{label_width + 12, std::max(label_width + 100, kWidth - text_width - 14), most};
  const double height = kRow * static_cast<double>(falls.size());
  SvgWriter svg(kWidth, height, "time of a step, from what it was to what is proven");
  double y = 0;
  for (size_t i = 0; i < falls.size(); ++i, y += kRow) {
    const Fall& fall = falls[i];
    svg.begin_group(fall.tooltip);
    svg.text({label_width, y + 13}, fall.label, {.anchor = TextAnchor::kEnd});
    const double left = scale.at(std::min(fall.begin, fall.end));
    const double right = scale.at(std::max(fall.begin, fall.end));
    svg.rect(left, y, std::max(1.0, right - left), kBar, ink::series(fall.series), 2);
    if (fall.interval) draw_whisker(svg, scale, fall, y);
    const double beside = fall.interval ? std::max(right, scale.at(fall.interval->second)) : right;
    svg.text({beside + 7, y + kBar - 5}, fall.text, {.ink = ink::kMuted});
    svg.end_group();
    if (i + 2 < falls.size())  // to where the next one begins
      svg.line({scale.at(fall.end), y + kBar}, {scale.at(fall.end), y + kRow}, ink::kMuted);
  }
  return svg.finish();
}

std::string step_timeline(const OptimizeSummary& summary) {
  const StepTimeline before = drawable(summary.baseline.timeline);
  const StepTimeline after = drawable(summary.result.timeline);
  double most = 0;
  for (const StepTimeline* timeline : {&before, &after})
    if (!timeline->launches.empty()) most = std::max(most, timeline->step_ms);
  if (!(most > 0)) return {};
  Legend legend("ms");
  for (size_t variant : {0, 1})
    for (const StepLaunch& launch : (variant == 0 ? before : after).launches)
      legend.add(name_of(launch), variant, launch.duration_ms);
  const double bottom = StepDrawing::height(before) + StepDrawing::height(after);
  SvgWriter svg(kWidth, bottom + 30 + legend.height(), "one step before and after");
  const Scale scale{120, kWidth - 30, most};
  draw_axis(svg, scale, bottom, "ms");
  StepDrawing drawing(svg, scale, legend);
  drawing.add("before", before);
  drawing.add("after", after);
  legend.draw(svg, bottom + 28);
  return svg.finish();
}

std::string memory_map(const OptimizeSummary& summary) {
  const std::vector<MemoryShare>&before = summary.baseline.memory, &after = summary.result.memory;
  const double most = std::max(sum_of(before), sum_of(after));
  if (!(most > 0)) return {};
  constexpr double kMebibyte = 1 << 20;
  Legend legend("MiB");
  for (size_t variant : {0, 1})
    for (const MemoryShare& share : variant == 0 ? before : after)
      legend.add(share.role, variant, static_cast<double>(share.bytes) / kMebibyte);
  const Scale scale{60, kWidth - 110, most / kMebibyte};
  SvgWriter svg(kWidth, 2 * kRow + 34 + legend.height(), "memory by what it holds");
  draw_axis(svg, scale, 2 * kRow, "MiB");
  double y = 2;
  for (const auto* shares : {&before, &after}) {
    svg.text({0, y + 13}, shares == &before ? "before" : "after");
    double sum = 0;
    for (const MemoryShare& share : *shares) {
      const double left = scale.at(sum / kMebibyte);
      sum += static_cast<double>(std::max<int64_t>(0, share.bytes));
      const double right = scale.at(sum / kMebibyte);
      svg.begin_group(fmt::format(
          "{}: {}", plain_line(share.role), mebibytes(static_cast<double>(share.bytes))));
      svg.rect(left, y, right - left, kBar, ink::series(legend.colour(share.role)));
      svg.end_group();
    }
    svg.text({scale.at(sum / kMebibyte) + 7, y + 13},
             sum > 0 ? mebibytes(sum) : "not recorded",
             {.ink = ink::kMuted});
    y += kRow;
  }
  legend.draw(svg, 2 * kRow + 28);
  return svg.finish();
}

}  // namespace ridge
