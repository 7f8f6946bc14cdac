#include "ridge/doctor/rules/loader_spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr size_t kShownWaits = 3;
constexpr double kMuchWaiting = 0.03;  // of a step

// Handing a batch from a worker of PyTorch to the thread that trains takes so many milliseconds for
// the queues, and one for so many bytes that are copied through shared memory. Measured with torch
// 2.x on two cores: 0.7 to 1.4 ms for 4 to 350 kB, 3 ms for 3.5 MB, 10 ms for 14 MB.
constexpr double kHandOverMs = 1, kBytesPerMs = 2e6;

// A batch is cheap that is made in less than so many times of handing it over.
constexpr double kFewTimes = 3;

bool is_host_span(EventKind kind) {
  return kind == EventKind::kRange || kind == EventKind::kOperator || kind == EventKind::kHostWait;
}

// From where no kernel ran up to where the loader's part of it ended.
Intervals starved_by_loader(const Analysis& analysis) {
  std::vector<Interval> stretches;
  for (const Gap& gap : analysis.gaps)
    if (const int64_t part = gap.by_cause_ns[static_cast<size_t>(HostCause::kLoader)]; part > 0)
      stretches.push_back({gap.at.begin, gap.at.begin + part});
  return union_of(std::move(stretches));
}

void keep_longest(const Trace& trace, size_t row, std::vector<size_t>& rows) {
  rows.push_back(row);
  std::sort(rows.begin(), rows.end(), [&](size_t a, size_t b) {
    return std::pair(-trace.duration_ns[a], a) < std::pair(-trace.duration_ns[b], b);
  });
  if (rows.size() > kShownWaits) rows.pop_back();
}

// Workers that finish together give batches in bursts: every other step waits, and the median of
// those may be 0. Then it is the mean, without the slowest tenth.
double usual_ms(std::vector<double> steps, double much_ms) {
  const auto waiting =
      std::count_if(steps.begin(), steps.end(), [much_ms](double ms) { return ms >= much_ms; });
  if (steps.empty() || 3 * static_cast<size_t>(waiting) < steps.size()) return middle_of(steps);
  std::sort(steps.begin(), steps.end());
  steps.resize(steps.size() - steps.size() / 10);
  return std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size());
}

LoaderForm form_of(std::string_view name, LoaderForm known) {
  if (holds(name, "multiprocess") || holds(name, "(workers)")) return LoaderForm::kWorkers;
  if (holds(name, "singleprocess") || name == "DataLoader.__next__") return LoaderForm::kSameThread;
  return known;
}

}  // namespace

SemanticClass class_of_workers(const Trace& trace, const LoadedBatches& batches) {
  if (trace.recorder == "ridge") return SemanticClass::kBitIdentical;
  return batches.workers_class.value_or(SemanticClass::kTrajectory);
}

std::string class_words_of_workers(const Trace& trace, const LoadedBatches& batches) {
  if (class_of_workers(trace, batches) == SemanticClass::kBitIdentical) return {};
  if (!batches.workers_class)
    return "; where samples draw random numbers, workers make it another training run";
  return fmt::format("; {}{}",
                     batches.reason,
                     batches.workers_class == SemanticClass::kTrajectory
                         ? ": with workers it is another training run"
                         : "");
}

bool is_cheap(const LoadedBatches& batches) {
  if (!(batches.make_ms >= 0) || batches.bytes < 0) return false;
  const double hand_over_ms = kHandOverMs + static_cast<double>(batches.bytes) / kBytesPerMs;
  return batches.make_ms < kFewTimes * hand_over_ms;
}

std::string fix_of_same_thread(const Trace& trace,
                               const LoadedBatches& batches,
                               bool is_less_work_first) {
  const bool is_known = batches.make_ms >= 0 || trace.recorder == "ridge";
  const std::string workers = fmt::format(
      "let workers make them ahead (num_workers >= 2 with persistent workers, in Ridge "
      "loader.workers){}",
      is_known ? "" : ", if one takes far longer to make than to copy between processes");
  // Samples that are drawn anew for each epoch cannot be kept.
  const std::string less = batches.workers_class == SemanticClass::kTrajectory
                               ? "make less work of them: store the samples decoded or smaller, or "
                                 "make a whole batch at once"
                               : "make less work of them: keep the samples in memory, store them "
                                 "decoded or smaller, or make a whole batch at once";
  const std::string words = class_words_of_workers(trace, batches);
  std::string fix = "batches are made on the thread that trains: ";
  if (is_cheap(batches))
    return fix +
           fmt::format(
               "{}; one is made in {:.2f} ms, and to hand it from one process to another costs "
               "about as much, so that workers (num_workers) gain little or lose",
               less,
               batches.make_ms) +
           words;
  return is_less_work_first ? fix + less + "; then " + workers + words
                            : fix + workers + words + "; or " + less;
}

bool is_producer_span(std::string_view name) {
  constexpr std::string_view kParts[] = {
      "fetch_data", "collate", "decode", "load sample", "__getitem__", "prefetch worker"};
  return name == "sample" || holds_any(name, kParts);
}

LoaderTime loader_time(const Trace& trace, const Analysis& analysis) {
  LoaderTime loader{.starved = starved_by_loader(analysis)};
  const std::vector<double> steps = ms_in_steps(loader.starved, analysis.steps);
  loader.starved_ms = usual_ms(steps, kMuchWaiting * analysis.breakdown.wall);
  for (double ms : steps) loader.mean_ms += ms / static_cast<double>(steps.size());
  const Intervals within = union_of({analysis.steps.windows.begin(), analysis.steps.windows.end()});
  const std::vector<HostCause> causes = causes_of(trace);
  std::set<uint32_t> lanes;
  ByName makes_samples(trace, is_producer_span);
  for (size_t row = 0; row < trace.size(); ++row) {
    if (!is_host_span(trace.kind[row]) || trace.lane_of(row).is_device()) continue;
    const bool makes = makes_samples(row);
    if (!makes && causes[row] != HostCause::kLoader) continue;
    loader.form = form_of(trace.name_text(row), loader.form);
    const Interval span{trace.start_ns[row], trace.end_ns(row)};
    const Intervals inside = clipped(within, span);
    if (inside.empty()) continue;
    if (trace.lane[row] == analysis.launching_lane) {
      keep_longest(trace, row, loader.waits);
      if (makes) loader.form = LoaderForm::kSameThread;
    } else if (makes) {
      lanes.insert(trace.lane[row]);
      loader.producer_ms += static_cast<double>(total_length(inside)) / 1e6;
    }
  }
  loader.producers = lanes.size();
  if (!lanes.empty()) loader.form = LoaderForm::kWorkers;
  if (!steps.empty()) loader.producer_ms /= static_cast<double>(steps.size());
  return loader;
}

}  // namespace ridge::doctor
