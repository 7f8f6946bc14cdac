#include "ridge/attach/samples/cgroup_sample.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/attach/samples/proc_files.h"

namespace ridge::attach {
namespace {

constexpr size_t kMostGroups = 64 << 10, kMostMounts = 4 << 20, kMostOfFile = 4096;
constexpr size_t kMostLevels = 64;
// Version 1 says "no limit" by the largest number of whole pages.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::string read_small(const std::string& folder, std::string_view name) {
  return ProcReader::read_whole(fmt::format("{}/{}", folder, name), kMostOfFile);
}

std::optional<int64_t> read_number(const std::string& folder, std::string_view name) {
  const std::string text = read_small(folder, name);
  std::string_view rest = text;
  return parse_number(next_word(rest));
}

// Whether `one` is among the words between the commas of `list`.
bool lists(std::string_view list, std::string_view one) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == one) return true;
    list.remove_prefix(std::min(list.size(), end + 1));
  }
  return false;
}

// mountinfo writes blanks as a backslash and three octal digits.
std::string unescape(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      const int code = 64 * (text[i + 1] - '0') + 8 * (text[i + 2] - '0') + (text[i + 3] - '0');
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Returns the rest of `path` below `root`, as "/a/b" or ""; nothing for a path that does not lie
// below it.
std::optional<std::string> below(std::string_view path, std::string_view root) {
  if (root.ends_with('/')) root.remove_suffix(1);
  if (!path.starts_with(root)) return {};
  path.remove_prefix(root.size());
  if (path.ends_with('/')) path.remove_suffix(1);
  if (!path.empty() && path[0] != '/') return {};
  // Groups above or beside the root that is seen here: no folder shows them.
  if (fmt::format("{}/", path).find("/../") != std::string::npos) return {};
  return std::string(path);
}

// Processors' worth of time that a group may use; nothing where it is not limited.
std::optional<double> quota_of(const std::string& folder, bool is_unified) {
  std::optional<int64_t> quota, period;
  if (is_unified) {
    const std::string text = read_small(folder, "cpu.max");
    std::string_view rest = text;
    quota = parse_number(next_word(rest));  // "max" is no number
    period = parse_number(next_word(rest));
  } else {
    quota = read_number(folder, "cpu.cfs_quota_us");
    period = read_number(folder, "cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return {};
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

double seconds(std::optional<int64_t> count, double unit) {
  return count && *count >= 0 ? unit * static_cast<double>(*count) : -1;
}

// Folders of the groups that hold the process, the innermost first.
struct Levels {
  std::vector<std::string> cpu{}, cpuacct{}, memory{};
  bool is_cpu_unified = true, is_memory_unified = true;
};

CgroupMounts mounts_of(const std::string& mountinfo) {
  CgroupMounts found;
  const auto keep = [](std::optional<CgroupMount>& first, const CgroupMount& mount) {
    if (!first) first = mount;
  };
  for (std::string_view text = mountinfo; !text.empty();) {
    std::string_view line = next_line(text);
    for (int i = 0; i < 3; ++i) next_word(line);
    const std::string_view root = next_word(line), folder = next_word(line);
    while (!line.empty() && next_word(line) != "-") continue;
    const std::string_view type = next_word(line);
    next_word(line);
    const std::string_view options = next_word(line);
    const CgroupMount mount{unescape(folder), unescape(root)};
    if (type == "cgroup2") keep(found.unified, mount);
    if (type != "cgroup") continue;
    if (lists(options, "cpu")) keep(found.cpu, mount);
    if (lists(options, "cpuacct")) keep(found.cpuacct, mount);
    if (lists(options, "memory")) keep(found.memory, mount);
  }
  return found;
}

// The first of `names` below `folder` that holds `file`.
std::optional<CgroupMount> first_with(const std::string& folder,
                                      std::string_view file,
                                      std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const std::string candidate = fmt::format("{}{}", folder, name);
    if (::access(fmt::format("{}/{}", candidate, file).c_str(), F_OK) == 0)
      return CgroupMount{candidate, "/"};
  }
  return {};
}

CgroupMounts usual_mounts(const std::string& folder) {
  return {.unified = first_with(folder, "cgroup.controllers", {"", "/unified"}),
          .cpu = first_with(folder, "cpu.stat", {"/cpu", "/cpu,cpuacct"}),
          .cpuacct = first_with(folder, "cpuacct.usage", {"/cpuacct", "/cpu,cpuacct"}),
          .memory = first_with(folder, "memory.usage_in_bytes", {"/memory"})};
}

// Empty where the group cannot be seen here.
std::vector<std::string> levels_of(const std::optional<CgroupMount>& mount, std::string_view path) {
  std::vector<std::string> folders;
  std::optional<std::string> rest;
  if (mount) rest = below(path, mount->root);
  if (!rest || ::access((mount->folder + *rest).c_str(), F_OK) != 0) return folders;
  while (!rest->empty() && folders.size() < kMostLevels) {
    folders.push_back(mount->folder + *rest);
    rest->resize(rest->rfind('/'));
  }
  folders.push_back(mount->folder);
  return folders;
}

// `groups` is what /proc/PID/cgroup holds: lines of "number:controllers:path".
Levels find_levels(const CgroupMounts& mounts, std::string_view groups) {
  Levels found;
  std::vector<std::string> unified;
  while (!groups.empty()) {
    std::string_view path = next_line(groups);
    const bool is_second = path.starts_with("0::");
    path.remove_prefix(std::min(path.size(), path.find(':') + 1));
    const std::string_view names = path.substr(0, path.find(':'));
    path.remove_prefix(std::min(path.size(), names.size() + 1));
    if (path.empty()) continue;
    if (is_second) unified = levels_of(mounts.unified, path);
    if (lists(names, "cpuacct")) found.cpuacct = levels_of(mounts.cpuacct, path);
    if (lists(names, "cpu")) found.cpu = levels_of(mounts.cpu, path);
    if (lists(names, "memory")) found.memory = levels_of(mounts.memory, path);
    found.is_cpu_unified &= !lists(names, "cpu");
    found.is_memory_unified &= !lists(names, "memory");
  }
  if (found.is_cpu_unified) found.cpu = unified;
  if (found.is_memory_unified) found.memory = unified;
  return found;
}

// Version 1 may count what is used in another tree of groups than that of the quotas.
double used_by(const std::string& inner, const std::vector<std::string>& levels) {
  for (const std::string& level : levels)
    if (level.substr(levels.back().size()) == inner)
      return seconds(read_number(level, "cpuacct.usage"), 1e-9);
  return -1;
}

void read_cpu(const Levels& levels, CgroupSample& sample) {
  if (levels.cpu.empty()) return;
  const std::string* tightest = &levels.cpu.front();
  for (const std::string& level : levels.cpu) {
    const std::optional<double> quota = quota_of(level, levels.is_cpu_unified);
    if (!quota || (sample.quota_cpus >= 0 && *quota >= sample.quota_cpus)) continue;
    sample.quota_cpus = *quota;
    tightest = &level;
  }
  const std::string stat = read_small(*tightest, "cpu.stat");
  if (levels.is_cpu_unified) {
    sample.throttled_seconds = seconds(number_of(stat, "throttled_usec"), 1e-6);
    sample.used_seconds = seconds(number_of(stat, "usage_usec"), 1e-6);
  } else {
    sample.throttled_seconds = seconds(number_of(stat, "throttled_time"), 1e-9);
    sample.used_seconds = used_by(tightest->substr(levels.cpu.back().size()), levels.cpuacct);
  }
  // A group without a limit is not held back, and not every such group says so.
  if (sample.throttled_seconds < 0 && sample.quota_cpus < 0) sample.throttled_seconds = 0;
}

void read_memory(const Levels& levels, CgroupSample& sample) {
  const bool is_unified = levels.is_memory_unified;
  for (const std::string& level : levels.memory) {
    const std::optional<int64_t> used =
        read_number(level, is_unified ? "memory.current" : "memory.usage_in_bytes");
    const std::optional<int64_t> limit =
        read_number(level, is_unified ? "memory.max" : "memory.limit_in_bytes");
    const bool is_tighter = limit && *limit >= 0 && *limit < kNoLimit &&
                            (sample.memory_limit_bytes < 0 || *limit < sample.memory_limit_bytes);
    if (is_tighter) sample.memory_limit_bytes = *limit;
    const bool is_wanted = is_tighter || &level == &levels.memory.front();
    if (used && *used >= 0 && is_wanted) sample.memory_bytes = *used;
  }
}

}  // namespace

CgroupReader::CgroupReader(pid_t process, std::string proc, const std::string& folder)
    : process_(process), proc_(std::move(proc)) {
  mounts_ = mounts_of(ProcReader::read_whole(proc_ + "/self/mountinfo", kMostMounts));
  if (!mounts_.unified && !mounts_.cpu && !mounts_.memory) mounts_ = usual_mounts(folder);
}

CgroupSample CgroupReader::take() {
  CgroupSample sample;
  const std::string path = fmt::format("{}/{}", proc_, process_);
  const std::string groups = ProcReader::read_whole(path + "/cgroup", kMostGroups);
  const Levels levels = find_levels(mounts_, groups);
  read_cpu(levels, sample);
  read_memory(levels, sample);

  missing_.clear();
  if (::access(path.c_str(), F_OK) != 0) return sample;  // it has ended: that is no lack
  const bool has_mounts = mounts_.unified || mounts_.cpu || mounts_.memory;
  if (groups.empty() || !has_mounts)
    missing_ = "limits of a container (no cgroup)";
  else if (levels.cpu.empty() && levels.memory.empty())
    missing_ = "limits of its container (its cgroup is not visible from here)";
  return sample;
}

}  // namespace ridge::attach
