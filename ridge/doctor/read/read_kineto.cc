#include "ridge/doctor/read/read_kineto.h"

#include "ridge/doctor/read/kineto_rows.h"
#include "ridge/doctor/read/read_trace.h"
#include "ridge/doctor/read/trace_bytes.h"

namespace ridge::doctor {

Trace read_kineto(ByteSource source, const std::string& path) {
  Trace trace;
  trace.source = path;
  trace.names.emplace_back();
  {
    KinetoRows rows(trace);
    KinetoStream stream(source, rows);
    stream.run(path);
    trace.is_truncated = stream.is_truncated();
    if (trace.is_truncated) rows.warn("the file ends early; what came before was read");
    rows.finish();
  }
  trace.sort();
  return trace;
}

Trace read_kineto(const std::string& path) {
  TraceBytes bytes(path);
  Trace trace = read_kineto([&](std::span<std::byte> out) { return bytes.read(out); }, path);
  if (!bytes.trouble().empty()) trace.warnings.push_back({bytes.trouble(), 1});
  return trace;
}

}  // namespace ridge::doctor
