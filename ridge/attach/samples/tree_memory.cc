#include "ridge/attach/samples/tree_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "ridge/attach/samples/proc_files.h"
#include "ridge/attach/samples/tree_samples.h"

namespace ridge::attach {
namespace {

constexpr size_t kMostText = 8192;

// "Pss:      1234 kB" of a text; -1: it has none.
int64_t proportional_bytes(std::string_view text) {
  constexpr std::string_view kName = "\nPss:";
  size_t at = text.find(kName);
  if (at == std::string_view::npos) return -1;
  at = text.find_first_not_of(' ', at + kName.size());
  if (at == std::string_view::npos) return -1;
  int64_t kibibytes = -1;
  std::from_chars(text.data() + at, text.data() + text.size(), kibibytes);
  return kibibytes < 0 ? -1 : kibibytes * 1024;
}

int64_t resident_bytes(const ProcessSample& process, const std::string& proc) {
  const int64_t bytes = proportional_bytes(
      ProcReader::read_whole(fmt::format("{}/{}/smaps_rollup", proc, process.pid), kMostText));
  return bytes >= 0 ? bytes : process.rss_bytes;
}

// Bytes that were resident at the peak of the process and are not now.
int64_t gone_bytes(const ProcessSample& process, const std::string& proc) {
  const std::string status =
      ProcReader::read_whole(fmt::format("{}/{}/status", proc, process.pid), kMostText);
  const std::optional<int64_t> peak = number_of(status, "VmHWM"), now = number_of(status, "VmRSS");
  return peak && now ? std::max<int64_t>(0, *peak - *now) * 1024 : 0;
}

}  // namespace

int64_t tree_peak_bytes(pid_t root, const std::string& proc) {
  int64_t sum = 0;
  for (const ProcessSample& process : TreeSampler(root, proc).take().processes)
    sum += resident_bytes(process, proc) + gone_bytes(process, proc);
  return sum;
}

int64_t tree_faults(pid_t root, const std::string& proc) {
  int64_t sum = 0;
  for (const ProcessSample& process : TreeSampler(root, proc).take().processes)
    sum += process.minor_faults;
  return sum;
}

}  // namespace ridge::attach
