#include "ridge/attach/samples/proc_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

#include "ridge/base/html/markup.h"

namespace ridge::attach {
namespace {

// Names are 15 bytes; those of the kernel's workers are longer.
constexpr size_t kLongestName = 64;

// Positions of the numbers behind the name, counted from the state (proc_pid_stat(5), less 3).
enum Field : size_t {
  kParent = 1,
  kMinorFaults = 7,
  kMajorFaults = 9,
  kUserTicks = 11,
  kSystemTicks = 12,
  kWaitedUserTicks = 13,
  kWaitedSystemTicks = 14,
  kThreads = 17,
  kStartTicks = 19,
  kRssPages = 21,
  kFields = 22,
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

// No sum of a few of them goes over.
int64_t sane(int64_t value) {
  return std::clamp<int64_t>(value, 0, std::numeric_limits<int64_t>::max() / 16);
}

}  // namespace

ProcFolder::ProcFolder(int above, const char* name) {
  const int opened = ::openat(above, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return;
  folder_ = ::fdopendir(opened);
  if (folder_ == nullptr)
    ::close(opened);
  else
    descriptor_ = opened;
}

ProcFolder::~ProcFolder() {
  if (folder_ != nullptr) ::closedir(folder_);
}

std::vector<pid_t> ProcFolder::numbers() const {
  std::vector<pid_t> found;
  if (folder_ == nullptr) return found;
  ::rewinddir(folder_);
  while (const dirent* entry = ::readdir(folder_)) {
    const std::optional<int64_t> number = parse_number(entry->d_name);
    if (number && *number > 0 && *number <= std::numeric_limits<pid_t>::max())
      found.push_back(static_cast<pid_t>(*number));
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

ProcFile::ProcFile(int folder, const char* name, size_t& open_files)
    : descriptor_(::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK)),
      open_files_(&open_files) {
  if (descriptor_ >= 0) ++open_files;
}

ProcFile::ProcFile(ProcFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), open_files_(other.open_files_) {}

ProcFile::~ProcFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  --*open_files_;
}

std::string_view ProcReader::read(const ProcFile& file) {
  const ssize_t bytes = ::pread(file.descriptor(), bytes_.data(), bytes_.size(), 0);
  error_ = bytes < 0 ? errno : 0;
  return {bytes_.data(), bytes < 0 ? 0 : static_cast<size_t>(bytes)};
}

std::string_view ProcReader::read(int folder, const char* name) {
  error_ = 0;
  // A pipe in the place of the file must not hold us.
  const int file = ::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const ssize_t bytes = file < 0 ? -1 : ::read(file, bytes_.data(), bytes_.size());
  if (bytes < 0) error_ = errno;
  if (file >= 0) ::close(file);
  return {bytes_.data(), bytes < 0 ? 0 : static_cast<size_t>(bytes)};
}

std::string ProcReader::read_whole(const std::string& path, size_t most) {
  std::string text;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return text;
  std::array<char, 4096> part;
  while (text.size() < most) {
    const ssize_t bytes = ::read(file, part.data(), std::min(part.size(), most - text.size()));
    if (bytes <= 0) break;
    text.append(part.data(), static_cast<size_t>(bytes));
  }
  ::close(file);
  return text;
}

std::optional<ProcStat> parse_stat(std::string_view line) {
  // A name may hold anything, closing parentheses too; numbers do not.
  const size_t open = line.find('('), close = line.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  std::string_view rest = line.substr(close + 1);
  const std::string_view state = next_word(rest);
  if (state.size() != 1) return {};

  std::array<int64_t, kFields> fields{};
  for (size_t i = kParent; i < kFields; ++i) {
    const std::optional<int64_t> number = parse_number(next_word(rest));
    if (!number) return {};
    fields[i] = *number;
  }
  if (fields[kParent] < 0 || fields[kParent] > std::numeric_limits<pid_t>::max()) return {};

  ProcStat stat;
  stat.name = plain_line(line.substr(open + 1, std::min(close - open - 1, kLongestName)));
  stat.state = state[0] >= '!' && state[0] <= '~' ? state[0] : '?';
  stat.parent = static_cast<pid_t>(fields[kParent]);
  stat.minor_faults = sane(fields[kMinorFaults]);
  stat.major_faults = sane(fields[kMajorFaults]);
  stat.cpu_ticks = sane(fields[kUserTicks]) + sane(fields[kSystemTicks]);
  stat.waited_ticks = sane(fields[kWaitedUserTicks]) + sane(fields[kWaitedSystemTicks]);
  stat.threads = sane(fields[kThreads]);
  stat.start_ticks = fields[kStartTicks];
  stat.rss_pages = sane(fields[kRssPages]);
  return stat;
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) return {};
  return value;
}

std::string_view next_word(std::string_view& text) {
  const auto first = std::find_if_not(text.begin(), text.end(), is_blank);
  const auto last = std::find_if(first, text.end(), is_blank);
  const auto from = static_cast<size_t>(first - text.begin());
  const std::string_view word = text.substr(from, static_cast<size_t>(last - first));
  text.remove_prefix(from + word.size());
  return word;
}

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::optional<int64_t> number_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.empty() || (line[0] != ':' && line[0] != ' ')) continue;
    line.remove_prefix(1);
    return parse_number(next_word(line));
  }
  return {};
}

}  // namespace ridge::attach
