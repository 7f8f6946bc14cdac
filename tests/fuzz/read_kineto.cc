// Kineto traces: what is read is a sorted table that holds together, in whatever pieces it comes.
#include "ridge/doctor/read/read_kineto.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "ridge/base/error.h"

namespace {

using ridge::doctor::Trace;

void require(bool condition) {
  if (!condition) std::abort();
}

Trace read(const uint8_t* data, size_t size, size_t piece) {
  size_t at = 0;
  return ridge::doctor::read_kineto(
      [&](std::span<std::byte> out) {
        const size_t count = std::min({piece, out.size(), size - at});
        if (count > 0) std::memcpy(out.data(), data + at, count);
        at += count;
        return count;
      },
      "fuzz");
}

void check_table(const Trace& trace) {
  for (size_t row = 0; row < trace.size(); ++row) {
    require(trace.name.at(row) < trace.names.size() && trace.lane.at(row) < trace.lanes.size());
    require(trace.duration_ns.at(row) >= 0 && trace.start_ns.at(row) >= 0);
    require(trace.end_ns(row) >= trace.start_ns[row] && trace.correlation.at(row) >= -1);
    require(row == 0 || trace.start_ns[row - 1] <= trace.start_ns[row]);
  }
  for (const auto& details : trace.details)
    require(std::max({details.shapes, details.types, details.stack}) < trace.names.size());
  const size_t tables =
      trace.launches.size() + trace.transfers.size() + trace.syncs.size() + trace.details.size();
  const auto has_details = [](uint32_t detail) { return detail != Trace::kNone; };
  require(tables == static_cast<size_t>(
                        std::count_if(trace.detail.begin(), trace.detail.end(), has_details)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Trace whole = read(data, size, size);
    check_table(whole);
    const Trace pieces = read(data, size, 7);
    require(pieces.start_ns == whole.start_ns && pieces.names == whole.names);
    require(pieces.warnings.size() == whole.warnings.size());
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer. InternalError is not caught: it is a finding.
  }
  return 0;
}
