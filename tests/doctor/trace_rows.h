// Traces as text, to compare them whole.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// All that a row says, its texts spelt out and its numbers of names, lanes and details left out.
inline std::string row_text(const Trace& trace, size_t row) {
  const Lane& lane = trace.lane_of(row);
  std::string text = fmt::format("{} '{}' {} {}/{}/{} '{}' {}+{} #{}",
                                 name_of(trace.kind[row]),
                                 trace.name_text(row),
                                 trace.lane[row],
                                 lane.process,
                                 lane.thread,
                                 lane.device,
                                 lane.name,
                                 trace.start_ns[row],
                                 trace.duration_ns[row],
                                 trace.correlation[row]);
  const uint32_t at = trace.detail[row];
  if (at == Trace::kNone) return text;
  const EventKind kind = trace.kind[row];
  if (kind == EventKind::kKernel) {
    const Launch& l = trace.launches.at(at);
    text += fmt::format(" grid {},{},{}", l.grid[0], l.grid[1], l.grid[2]);
    text += fmt::format(" block {},{},{}", l.block[0], l.block[1], l.block[2]);
    text += fmt::format(" {} registers {} shared graph {}", l.registers, l.shared_bytes, l.graph);
  } else if (kind == EventKind::kSynchronization) {
    const Sync& s = trace.syncs.at(at);
    text += fmt::format(" sync {} {}", static_cast<int>(s.what), s.waits_on_stream);
    text += fmt::format(" {} {}", s.waits_on_correlation, s.event);
  } else if (kind == EventKind::kOperator) {
    const Details& d = trace.details.at(at);
    text += fmt::format(" {} {} {}", trace.names[d.shapes], trace.names[d.types], d.collective);
    text += fmt::format(" {} {} stack {}", d.flops, d.bytes, trace.names[d.stack]);
  } else {
    const Transfer& t = trace.transfers.at(at);
    text += fmt::format(" {} B {}->{}", t.bytes, static_cast<int>(t.from), static_cast<int>(t.to));
    text += t.is_async ? " async" : " blocking";
  }
  return text;
}

/// All rows and warnings, a line each.
inline std::vector<std::string> lines_of(const Trace& trace) {
  std::vector<std::string> lines;
  for (size_t row = 0; row < trace.size(); ++row) lines.push_back(row_text(trace, row));
  for (const Warning& warning : trace.warnings)
    lines.push_back(fmt::format("{} x {}", warning.count, warning.text));
  return lines;
}

}  // namespace ridge::doctor
