// How a trace is filled, and the order that it is brought into.
#include "ridge/doctor/trace/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace ridge::doctor {
namespace {

using Numbers = std::vector<uint32_t>;

/// The order of `values` by `less`, as their present numbers.
template <typename T, typename Less>
Numbers order_of(const std::vector<T>& values, Less less) {
  Numbers order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return less(values[a], values[b]);
  });
  return order;
}

/// `values` in `order`.
template <typename T>
void reorder(std::vector<T>& values, const Numbers& order) {
  std::vector<T> result;
  result.reserve(values.size());
  for (uint32_t from : order) result.push_back(std::move(values[from]));
  values = std::move(result);
}

/// For each old number the new one.
Numbers inverse_of(const Numbers& order) {
  Numbers inverse(order.size());
  for (size_t to = 0; to < order.size(); ++to) inverse[order[to]] = static_cast<uint32_t>(to);
  return inverse;
}

void renumber(std::vector<uint32_t>& column, const Numbers& inverse) {
  for (uint32_t& number : column) number = inverse[number];
}

void sort_names(Trace& trace) {
  const Numbers order = order_of(trace.names, std::less<>());  // the empty text comes first
  const Numbers inverse = inverse_of(order);
  reorder(trace.names, order);
  renumber(trace.name, inverse);
  for (Details& row : trace.details) {
    row.shapes = inverse[row.shapes];
    row.types = inverse[row.types];
    row.strides = inverse[row.strides];
    row.stack = inverse[row.stack];
  }
}

void sort_lanes(Trace& trace) {
  const auto key = [](const Lane& lane) {
    return std::tie(lane.device, lane.process, lane.thread, lane.name);
  };
  const Numbers order =
      order_of(trace.lanes, [&](const Lane& a, const Lane& b) { return key(a) < key(b); });
  renumber(trace.lane, inverse_of(order));
  reorder(trace.lanes, order);
}

auto key_of(const Transfer& row) { return std::tuple(row.bytes, row.from, row.to, row.is_async); }
auto key_of(const Launch& row) {
  const auto& [gx, gy, gz] = row.grid;
  const auto& [bx, by, bz] = row.block;
  return std::tuple(gx, gy, gz, bx, by, bz, row.registers, row.shared_bytes, row.graph);
}
auto key_of(const Sync& row) {
  return std::tuple(row.what, row.waits_on_stream, row.waits_on_correlation, row.event);
}
auto key_of(const Details& row) {
  return std::tuple(
      row.shapes, row.types, row.strides, row.stack, row.collective, row.flops, row.bytes);
}

/// Calls `use` with the table that rows of `kind` have details in, if there is one.
template <typename Use>
void with_table(Trace& trace, EventKind kind, Use use) {
  switch (kind) {
    case EventKind::kCopy:
    case EventKind::kSet:
      return use(trace.transfers);
    case EventKind::kKernel:
      return use(trace.launches);
    case EventKind::kSynchronization:
      return use(trace.syncs);
    case EventKind::kOperator:
      return use(trace.details);
    default:
      return;
  }
}

/// Orders two rows that are alike but for their details: returns whether `a` comes first.
bool details_less(Trace& trace, uint32_t a, uint32_t b) {
  const uint32_t first = trace.detail[a], second = trace.detail[b];
  if (first == Trace::kNone || second == Trace::kNone) return first < second;
  bool less = false;
  with_table(trace, trace.kind[a], [&](auto& table) {
    less = key_of(table[first]) < key_of(table[second]);
  });
  return less;
}

/// The order of rows that the header promises; of equal rows that of their details.
Numbers row_order(Trace& trace) {
  Numbers order(trace.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto less = [&trace](uint32_t a, uint32_t b) {
    if (trace.start_ns[a] != trace.start_ns[b]) return trace.start_ns[a] < trace.start_ns[b];
    const auto rest = [&trace](uint32_t row) {
      return std::tuple(-trace.duration_ns[row],
                        trace.lane[row],
                        trace.kind[row],
                        trace.name[row],
                        trace.correlation[row]);
    };
    const auto left = rest(a), right = rest(b);
    return left != right ? left < right : details_less(trace, a, b);
  };
  // Recorders write most rows in order, or nearly.
  if (!std::is_sorted(order.begin(), order.end(), less))
    std::sort(order.begin(), order.end(), less);
  return order;
}

/// The tables in the order of the rows that point to them, without what none points to.
void compact_tables(Trace& trace) {
  Trace sorted;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.detail[row] == Trace::kNone) continue;
    const auto move_to = [&](auto& table, auto& to) {
      to.push_back(table[trace.detail[row]]);
      trace.detail[row] = static_cast<uint32_t>(to.size() - 1);
    };
    const EventKind kind = trace.kind[row];
    if (kind == EventKind::kKernel)
      move_to(trace.launches, sorted.launches);
    else if (kind == EventKind::kSynchronization)
      move_to(trace.syncs, sorted.syncs);
    else if (kind == EventKind::kOperator || kind == EventKind::kPython)
      move_to(trace.details, sorted.details);
    else
      move_to(trace.transfers, sorted.transfers);
  }
  trace.launches = std::move(sorted.launches);
  trace.syncs = std::move(sorted.syncs);
  trace.details = std::move(sorted.details);
  trace.transfers = std::move(sorted.transfers);
}

}  // namespace

std::string_view name_of(EventKind kind) {
  switch (kind) {
    case EventKind::kOperator:
      return "operator";
    case EventKind::kPython:
      return "python";
    case EventKind::kRange:
      return "range";
    case EventKind::kRuntime:
      return "runtime";
    case EventKind::kHostWait:
      return "host wait";
    case EventKind::kKernel:
      return "kernel";
    case EventKind::kCopy:
      return "copy";
    case EventKind::kSet:
      return "set";
    case EventKind::kSynchronization:
      return "synchronization";
    case EventKind::kDeviceRange:
      return "device range";
    case EventKind::kOverhead:
      return "overhead";
    case EventKind::kOther:
      return "other";
  }
  return "other";
}

bool Trace::has_device_work() const {
  return std::any_of(kind.begin(), kind.end(), is_device_work);
}

void Trace::sort() {
  sort_names(*this);
  sort_lanes(*this);
  const Numbers order = row_order(*this);
  reorder(kind, order);
  reorder(name, order);
  reorder(lane, order);
  reorder(start_ns, order);
  reorder(duration_ns, order);
  reorder(correlation, order);
  reorder(detail, order);
  compact_tables(*this);
  std::sort(warnings.begin(), warnings.end(), [](const Warning& a, const Warning& b) {
    return a.text < b.text;
  });
}

uint32_t TraceBuilder::text(std::string_view text) {
  if (trace_.names.empty()) trace_.names.emplace_back();
  if (text.empty()) return 0;
  const auto found = texts_.find(text);
  if (found != texts_.end()) return found->second;
  const auto number = static_cast<uint32_t>(trace_.names.size());
  trace_.names.emplace_back(text);
  texts_.emplace(text, number);
  return number;
}

uint32_t TraceBuilder::lane(const Lane& lane) {
  const std::string key =
      fmt::format("{} {} {} {}", lane.device, lane.process, lane.thread, lane.name);
  const auto [found, is_new] = lanes_.emplace(key, static_cast<uint32_t>(trace_.lanes.size()));
  if (is_new) trace_.lanes.push_back(lane);
  return found->second;
}

size_t TraceBuilder::add(
    EventKind kind, uint32_t name, uint32_t lane, int64_t start_ns, int64_t duration_ns) {
  if (trace_.names.empty()) trace_.names.emplace_back();
  if (duration_ns < 0) warn("events end before they begin; their duration counts as 0");
  trace_.kind.push_back(kind);
  trace_.name.push_back(name);
  trace_.lane.push_back(lane);
  trace_.start_ns.push_back(start_ns);
  trace_.duration_ns.push_back(std::max<int64_t>(0, duration_ns));
  trace_.correlation.push_back(-1);
  trace_.detail.push_back(Trace::kNone);
  return trace_.size() - 1;
}

void TraceBuilder::set(size_t row, const Transfer& transfer) {
  trace_.detail[row] = static_cast<uint32_t>(trace_.transfers.size());
  trace_.transfers.push_back(transfer);
}

void TraceBuilder::set(size_t row, const Launch& launch) {
  trace_.detail[row] = static_cast<uint32_t>(trace_.launches.size());
  trace_.launches.push_back(launch);
}

void TraceBuilder::set(size_t row, const Sync& sync) {
  trace_.detail[row] = static_cast<uint32_t>(trace_.syncs.size());
  trace_.syncs.push_back(sync);
}

void TraceBuilder::set(size_t row, const Details& details) {
  trace_.detail[row] = static_cast<uint32_t>(trace_.details.size());
  trace_.details.push_back(details);
}

void TraceBuilder::warn(std::string_view text) {
  const auto same = std::find_if(trace_.warnings.begin(),
                                 trace_.warnings.end(),
                                 [&](const Warning& warning) { return warning.text == text; });
  if (same == trace_.warnings.end())
    trace_.warnings.push_back({std::string(text), 1});
  else
    ++same->count;
}

}  // namespace ridge::doctor
