#include "ridge/proof/report/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "ridge/base/html/charts.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/html/svg_writer.h"
#include "ridge/proof/report/words.h"
#include "ridge/proof/trial_text.h"

namespace ridge {
namespace {

constexpr double kBar = 16, kFont = 12;
constexpr double kLabel = 18;  // of a line of text above a bar
constexpr double kRow = kLabel + kBar + 8;
constexpr double kAxis = 20;        // of the numbers below a drawing
constexpr double kThinnest = 0.05;  // per cent
constexpr size_t kColours = 8;
constexpr size_t kMostDrawn = 5000;  // launches of a time-line

// Values from 0 on, to per cents; the ends of lines have a width, too.
struct Scale {
  double most = 1;
  double from = 0.2, to = 99.8;
  double at(double value) const { return from + (to - from) * std::clamp(value / most, 0.0, 1.0); }
};

// Ticks with their numbers under a drawing that ends at `bottom`.
void draw_axis(SvgWriter& svg, const Scale& scale, double bottom, std::string_view unit) {
  for (double tick : linear_ticks(0, scale.most, 4)) {
    const double x = scale.at(tick);
    svg.line({x, 0}, {x, bottom}, ink::kGrid);
    draw_tick(svg, x, bottom + 15, fmt::format("{} {}", readable_number(tick), unit));
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
        {.label = trial.technique,
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
  /// `variants` are one or two: before, and after.
  Legend(std::string_view unit, size_t variants) : unit_(unit), variants_(variants) {}

  void add(const std::string& name, size_t variant, double value) {
    totals_[name][variant] += value;
  }

  // No name is added from here on.
  size_t colour(const std::string& name) {
    rank();
    return std::min(ranks_.at(name), kColours - 1);
  }

  PictureKey key() {
    rank();
    PictureKey key;
    for (size_t i = 0; i < std::min(names_.size(), kColours); ++i)
      key.entries.push_back({ink::series(i), text_of(i)});
    return key;
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
    std::string text =
        is_rest ? fmt::format("{} others", names_.size() - i) : shortened(names_[i], 40);
    text += fmt::format(" {}", readable_number(sum[0]));
    if (variants_ == 2) text += fmt::format(" \u2192 {}", readable_number(sum[1]));
    return fmt::format("{} {}", text, unit_);
  }

  std::string_view unit_;
  size_t variants_;
  std::map<std::string, BeforeAfter> totals_;
  std::map<std::string, size_t> ranks_;
  std::vector<std::string> names_;
};

// The variants that a picture compares: one where nothing became faster.
std::vector<const VariantSpeed*> variants_of(const OptimizeSummary& summary) {
  if (!summary.is_faster()) return {&summary.baseline};
  return {&summary.baseline, &summary.result};
}

// Names the variants; nothing to tell apart where there is one.
std::string_view title_of(size_t variant, size_t variants) {
  return variants < 2 ? "as it is" : variant == 0 ? "before" : "after";
}

// Stretches of short launches are one name, however many each holds.
std::string name_of(const StepLaunch& launch) {
  return launch.name.ends_with(kShortOnes) ? "short ones" : launch.name;
}

// Keeps the launches that a page can draw: finite times, and at most kMostDrawn of them.
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
      svg_.text({0, y_ + 14}, fmt::format("{}: not recorded", title), {.bold = true});
      y_ += kTitle;
      return;
    }
    svg_.text({0, y_ + 14},
              fmt::format("{}: {} ms", title, readable_number(timeline.step_ms)),
              {.bold = true});
    y_ += kTitle;
    const double top = y_;
    for (const std::string& row : rows_of(timeline)) {
      svg_.text({0, y_ + 13}, fitted(row, kFont, kNarrowPicture), {.ink = ink::kMuted});
      for (const StepLaunch& launch : timeline.launches)
        if (launch.row == row) add_launch(launch);
      y_ += kRow;
    }
    const double end = scale_.at(timeline.step_ms);
    svg_.line({end, top + kLabel - 3}, {end, y_ - 5}, ink::kText, 1.25);
  }

  static double height(const StepTimeline& timeline) {
    return kTitle + kRow * static_cast<double>(rows_of(timeline).size());
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
    svg_.rect(left,
              y_ + kLabel,
              std::max(kThinnest, right - left),
              kBar,
              ink::series(legend_.colour(name_of(launch))));
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

Picture waterfall(const OptimizeSummary& summary, std::span<const TrialRecord> trials) {
  const std::vector<Fall> falls = falls_of(summary, trials);
  Scale scale{.most = 0};
  for (const Fall& fall : falls)
    scale.most =
        std::max({scale.most, fall.begin, fall.end, fall.interval ? fall.interval->second : 0});
  const double height = kRow * static_cast<double>(falls.size());
  SvgWriter svg(height, "time of a step, from what it was to what is proven");
  double y = 0;
  for (size_t i = 0; i < falls.size(); ++i, y += kRow) {
    const Fall& fall = falls[i];
    if (i + 2 < falls.size())  // to where the next one begins
      svg.line({scale.at(fall.end), y + kLabel + kBar},
               {scale.at(fall.end), y + kRow + kLabel},
               ink::kMuted);
    svg.begin_group(fall.tooltip);
    const double room = kNarrowPicture - 12 - estimated_width(fall.text, kFont);
    svg.text({0, y + 13}, fitted(fall.label, kFont, room));
    svg.text(
        {100, y + 13}, fall.text, {.anchor = TextAnchor::kEnd, .ink = ink::kMuted, .shift = -6});
    const double left = scale.at(std::min(fall.begin, fall.end));
    const double right = scale.at(std::max(fall.begin, fall.end));
    svg.rect(left, y + kLabel, std::max(0.2, right - left), kBar, ink::series(fall.series), 2);
    if (fall.interval) draw_whisker(svg, scale, fall, y + kLabel);
    svg.end_group();
  }
  return {.svg = svg.finish()};
}

Picture step_timeline(const OptimizeSummary& summary) {
  std::vector<StepTimeline> timelines;
  for (const VariantSpeed* variant : variants_of(summary))
    timelines.push_back(drawable(variant->timeline));
  Legend legend("ms", timelines.size());
  Scale scale{.most = 0};
  double bottom = 0;
  for (size_t i = 0; i < timelines.size(); ++i) {
    const StepTimeline& timeline = timelines[i];
    if (!timeline.launches.empty()) scale.most = std::max(scale.most, timeline.step_ms);
    bottom += StepDrawing::height(timeline);
    for (const StepLaunch& launch : timeline.launches)
      legend.add(name_of(launch), i, launch.duration_ms);
  }
  if (!(scale.most > 0)) return {};
  SvgWriter svg(bottom + kAxis, "what ran in one step, by thread");
  draw_axis(svg, scale, bottom, "ms");
  StepDrawing drawing(svg, scale, legend);
  for (size_t i = 0; i < timelines.size(); ++i)
    drawing.add(title_of(i, timelines.size()), timelines[i]);
  return {.svg = svg.finish(), .keys = {legend.key()}};
}

Picture memory_map(const OptimizeSummary& summary) {
  constexpr double kMebibyte = 1 << 20;
  std::vector<const VariantSpeed*> variants = variants_of(summary);
  const bool is_same = summary.baseline.memory == summary.result.memory;
  if (is_same) variants.resize(1);
  Legend legend("MiB", variants.size());
  Scale scale{.most = 0};
  for (size_t i = 0; i < variants.size(); ++i) {
    scale.most = std::max(scale.most, sum_of(variants[i]->memory) / kMebibyte);
    for (const MemoryShare& share : variants[i]->memory)
      legend.add(share.role, i, static_cast<double>(share.bytes) / kMebibyte);
  }
  if (!(scale.most > 0)) return {};
  const double bottom = kRow * static_cast<double>(variants.size());
  SvgWriter svg(bottom + kAxis, "memory by what it holds");
  draw_axis(svg, scale, bottom, "MiB");
  for (size_t i = 0; i < variants.size(); ++i) {
    const double y = kRow * static_cast<double>(i), whole = sum_of(variants[i]->memory);
    const std::string_view title =
        is_same && summary.is_faster() ? "before and after" : title_of(i, variants.size());
    svg.text({0, y + 13},
             fmt::format("{}: {}", title, whole > 0 ? mebibytes(whole) : "not recorded"));
    double sum = 0;
    for (const MemoryShare& share : variants[i]->memory) {
      const double left = scale.at(sum / kMebibyte);
      sum += static_cast<double>(std::max<int64_t>(0, share.bytes));
      const double right = scale.at(sum / kMebibyte);
      svg.begin_group(fmt::format(
          "{}: {}", plain_line(share.role), mebibytes(static_cast<double>(share.bytes))));
      svg.rect(left, y + kLabel, right - left, kBar, ink::series(legend.colour(share.role)));
      svg.end_group();
    }
  }
  return {.svg = svg.finish(), .keys = {legend.key()}};
}

}  // namespace ridge
