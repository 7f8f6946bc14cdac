#include "ridge/doctor/read/read_trace.h"

#include <array>

#include "ridge/doctor/read/trace_bytes.h"

namespace ridge::doctor {

Trace read_trace(const std::string& path) {
  constexpr std::string_view kSqlite("SQLite format 3\0", 16);
  std::array<std::byte, kSqlite.size()> head;
  size_t got = 0;
  {
    TraceBytes bytes(path);
    while (got < head.size()) {
      const size_t more = bytes.read(std::span(head).subspan(got));
      if (more == 0) break;
      got += more;
    }
  }
  return as_text(std::span(head).first(got)) == kSqlite ? read_nsys(path) : read_kineto(path);
}

}  // namespace ridge::doctor
