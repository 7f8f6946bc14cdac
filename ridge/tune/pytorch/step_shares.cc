#include "ridge/tune/pytorch/step_shares.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/doctor/live/live.h"
#include "ridge/doctor/read/read_trace.h"
#include "ridge/doctor/trace/intervals.h"

namespace ridge {
namespace {

// The name that torch gives the range of an update.
constexpr std::string_view kUpdate = "Optimizer.step#";

// Words of the names of operators whose speed depends on the layout of images.
constexpr std::string_view kImageWords[] = {"conv",
                                            "pool",
                                            "batch_norm",
                                            "batchnorm",
                                            "group_norm",
                                            "groupnorm",
                                            "instance_norm",
                                            "upsample",
                                            "pixel_shuffle"};
// Words of operators that compute products, and names of such whose words others have too.
constexpr std::string_view kProductWords[] = {
    "conv", "linear", "matmul", "einsum", "mkldnn", "lstm", "gru", "rnn", "scaled_dot_product"};
constexpr std::string_view kProductNames[] = {
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot"};
constexpr std::string_view kPlainSpaces[] = {"aten", "autograd", "torch", "prim", "prims"};

// Seconds in which an operator takes memory for its result and gives it back, without the faults
// of its pages: an upper bound.
constexpr double kAllocationSeconds = 0.5e-6;

bool has_any(std::string_view name, std::span<const std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return name.find(word) != std::string_view::npos; });
}

// Lower case, and without "convert_element_type" and the like, which are no convolutions.
std::string plain_name(std::string_view name) {
  std::string plain(name);
  std::ranges::transform(plain, plain.begin(), [](unsigned char c) { return std::tolower(c); });
  if (const size_t at = plain.find("convert"); at != std::string::npos) plain.erase(at, 7);
  return plain;
}

bool is_of_images(const std::string& name) { return has_any(name, kImageWords); }

// An operator of somebody's own may be anything, and is taken for a product.
bool is_product(const std::string& name) {
  const size_t colons = name.find("::");
  const bool has_space = colons != std::string::npos;
  const std::string_view space = std::string_view(name).substr(0, has_space ? colons : 0);
  const std::string_view last = std::string_view(name).substr(has_space ? colons + 2 : 0);
  if (has_space && std::ranges::find(kPlainSpaces, space) == std::end(kPlainSpaces)) return true;
  return has_any(name, kProductWords) ||
         (space == "aten" && std::ranges::find(kProductNames, last) != std::end(kProductNames));
}

// The share of the steps in which any of the rows goes on.
double share_of(const doctor::Analysis& analysis, std::vector<doctor::Interval> rows) {
  const doctor::Intervals all = doctor::union_of(std::move(rows));
  double within = 0, whole = 0;
  for (const doctor::Interval& step : analysis.steps.windows) {
    within += static_cast<double>(doctor::total_length(doctor::clipped(all, step)));
    whole += static_cast<double>(step.length());
  }
  return whole > 0 ? within / whole : 0;
}

double share_of_updates(const doctor::Trace& trace, const doctor::Analysis& analysis) {
  std::vector<doctor::Interval> updates;
  for (size_t row = 0; row < trace.size(); ++row)
    if (!trace.lane_of(row).is_device() && trace.name_text(row).starts_with(kUpdate))
      updates.push_back({trace.start_ns[row], trace.end_ns(row)});
  return share_of(analysis, std::move(updates));
}

bool is_within(const doctor::Analysis& analysis, int64_t at) {
  return std::ranges::any_of(analysis.steps.windows, [&](const doctor::Interval& step) {
    return step.begin <= at && at < step.end;
  });
}

OperatorShares operator_shares(const doctor::Trace& trace, const doctor::Analysis& analysis) {
  std::vector<std::string> names;
  for (const std::string& name : trace.names) names.push_back(plain_name(name));
  std::vector<size_t> operators;
  std::vector<int64_t> of_lane(trace.lanes.size());
  double within = 0;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != doctor::EventKind::kOperator) continue;
    operators.push_back(row);
    of_lane[trace.lane[row]] += trace.duration_ns[row];
    if (is_within(analysis, trace.start_ns[row])) ++within;
  }
  if (operators.empty()) return {};
  const auto busiest = static_cast<uint32_t>(std::ranges::max_element(of_lane) - of_lane.begin());
  std::vector<doctor::Interval> images, products, beside;
  for (const size_t row : operators) {
    const doctor::Interval at{trace.start_ns[row], trace.end_ns(row)};
    const std::string& name = names[trace.name[row]];
    if (is_of_images(name)) images.push_back(at);
    if (is_product(name)) products.push_back(at);
    if (trace.lane[row] != busiest) beside.push_back(at);
  }
  const auto steps = static_cast<double>(std::max<size_t>(1, analysis.steps.windows.size()));
  const double step_seconds = 1e-3 * analysis.step_ms_median;
  return {.images = share_of(analysis, std::move(images)),
          .products = share_of(analysis, std::move(products)),
          .allocations = step_seconds > 0
                             ? std::min(1.0, within / steps * kAllocationSeconds / step_seconds)
                             : 1,
          .beside = share_of(analysis, std::move(beside))};
}

}  // namespace

StepShares step_shares(const doctor::Examination& examination) {
  const doctor::Analysis& analysis = examination.analysis;
  StepShares shares;
  if (analysis.is_cpu_only) {
    shares.optimizer = share_of_updates(examination.trace, analysis);
    shares.operators = operator_shares(examination.trace, analysis);
  }
  if (!analysis.is_cpu_only && !analysis.kernels.empty() && analysis.breakdown.wall > 0)
    shares.device_idle = std::clamp(analysis.breakdown.idle / analysis.breakdown.wall, 0.0, 1.0);
  for (const doctor::Finding& finding : examination.diagnosis.findings)
    if (finding.cost_ms > 0 && doctor::is_worth_fixing(finding))
      shares.findings.push_back({.rule = std::string(finding.rule),
                                 .title = finding.title,
                                 .share = finding.share,
                                 .ceiling = finding.ceiling,
                                 .fix = finding.fix});
  return shares;
}

std::optional<StepShares> recorded_shares(const attach::ProcessFacts& facts) {
  if (facts.trace_path.empty() || facts.spans_path.empty()) return std::nullopt;
  try {
    doctor::LiveFacts seen{.torch_threads = facts.threads,
                           .short_products = short_product_speed(),
                           .step_source = facts.step_source};
    if (!facts.loaders.empty()) {
      seen.batch = facts.loaders.front().batch;
      seen.loader_workers = facts.loaders.front().workers;
    }
    return step_shares(doctor::examine_live(
        doctor::read_trace(facts.trace_path), doctor::read_trace(facts.spans_path), seen));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace ridge
