// R14: matrix products that take more than twice what their shape should.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/foresight.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/matrix_roof.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.03, .warning = 0.05, .high = 0.15};
constexpr int64_t kShortNs = 50'000;  // Below, latency is most of it.
constexpr double kLeastEfficiency = 0.5, kFullWaves = 0.8, kSure = 0.7;
constexpr std::string_view kFix =
    "pad sizes to multiples of 64, choose ones that fill the device's waves of blocks, let the "
    "library search (torch.compile with mode=\"max-autotune\"), or join thin products into one";

struct Slow {
  Product product;
  double roof_ns = 0, efficiency = 1;
};

// No clock and no shape reaches the rates that makers state. Efficiency is therefore measured
// against the best product of the same type of numbers in the trace.
std::vector<Slow> slow_products(const Trace& trace, const Analysis& analysis) {
  const std::vector<Product> products = products_of(trace, analysis);
  const Roof roof = roof_of(trace, analysis, products);
  std::map<std::pair<int64_t, bool>, double> best;
  std::vector<Slow> slow;
  for (const Product& product : products) {
    const int64_t ns = trace.duration_ns[product.kernel];
    const double roof_ns = 1e9 * roof.seconds_of(product);
    if (ns < kShortNs || !(roof_ns > 0)) continue;
    slow.push_back({product, roof_ns, roof_ns / static_cast<double>(ns)});
    double& most = best[{product.size, product.is_plain}];
    most = std::min(1.0, std::max(most, slow.back().efficiency));
  }
  for (Slow& each : slow) {
    const double most = best[{each.product.size, each.product.is_plain}];
    each.roof_ns /= most;
    each.efficiency /= most;
  }
  std::erase_if(slow, [](const Slow& each) { return each.efficiency >= kLeastEfficiency; });
  std::sort(slow.begin(), slow.end(), [&](const Slow& a, const Slow& b) {
    const auto lost = [&](const Slow& each) {
      return static_cast<double>(trace.duration_ns[each.product.kernel]) - each.roof_ns;
    };
    return std::pair(-lost(a), a.product.kernel) < std::pair(-lost(b), b.product.kernel);
  });
  return slow;
}

// How full the waves of its blocks are; 1 where it is not known.
double wave_fill(const Trace& trace, const Analysis& analysis, size_t kernel) {
  if (trace.detail[kernel] == Trace::kNone) return 1;
  for (const Device& device : trace.devices) {
    if (device.number != analysis.device || device.multiprocessors <= 0) continue;
    const double waves =
        static_cast<double>(trace.launches[trace.detail[kernel]].blocks()) / device.multiprocessors;
    // One that fits into one wave may be persistent.
    return waves > 1 ? waves / std::ceil(waves) : 1;
  }
  return 1;
}

std::string causes_of(const Trace& trace, const Analysis& analysis, const Product& product) {
  std::string text;
  const auto add = [&](const std::string& cause) { text += (text.empty() ? "" : ", ") + cause; };
  const double fill = wave_fill(trace, analysis, product.kernel);
  if (fill < kFullWaves)
    add(fmt::format("its last wave of blocks leaves {:.0f} % idle", 100 * (1 - fill)));
  const int64_t aligned = 16 / product.size;
  if (product.n % aligned != 0 || product.k % aligned != 0)
    add(fmt::format("rows are no multiple of 16 bytes (pad to a multiple of {})", aligned));
  if (product.k < 128) add("few numbers are summed up for each result");
  return text.empty() ? "" : ": " + text;
}

}  // namespace

void r14_slow_products(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const std::vector<Slow> slow = slow_products(trace, analysis);
  double lost_ms = 0;
  for (const Slow& each : slow)
    lost_ms += (static_cast<double>(trace.duration_ns[each.product.kernel]) - each.roof_ns) / 1e6;
  lost_ms /= static_cast<double>(std::max<size_t>(1, analysis.steps.windows.size()));
  const double share = share_of(lost_ms, analysis);
  if (share < kLadder.info) {
    output.not_fired.push_back(
        {"R14",
         fmt::format("products of known shapes are {:.1f} % of a step over their roof",
                     100 * share)});
    return;
  }
  Finding finding{.rule = "R14", .title = "matrix products far from their roof"};
  finding.severity = severity_of(share, kLadder);
  finding.confidence = kSure;
  charge(finding, analysis, lost_ms);
  std::vector<size_t> rows;
  std::map<std::string, bool> told;
  for (const Slow& each : slow) {
    rows.push_back(each.product.kernel);
    const Product& p = each.product;
    const std::string shape = fmt::format("{} x ({}, {}) by ({}, {})", p.batch, p.m, p.k, p.k, p.n);
    if (told.size() < 3 && !told[shape])
      finding.evidence.push_back({.rows = {p.kernel},
                                  .text = fmt::format("{} reaches {:.0f} % of what it could{}",
                                                      shape,
                                                      100 * each.efficiency,
                                                      causes_of(trace, analysis, p))});
    told[shape] = true;
  }
  finding.at = stretches_of(trace, rows);
  predict(finding, foresee(analysis), [&](WhatIf& what_if) {
    for (const Slow& each : slow)
      what_if.set_duration(each.product.kernel, static_cast<int64_t>(each.roof_ns));
  });
  report(output,
         trace,
         std::move(finding),
         {.fix = kFix, .semantic_class = SemanticClass::kReassociation});
}

}  // namespace ridge::doctor
