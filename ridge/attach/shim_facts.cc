// Reads the facts that the processes of a program wrote about themselves. They may do anything to
// these files.
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "ridge/attach/shim.h"
#include "ridge/base/error.h"
#include "ridge/base/json_fields.h"
#include "ridge/base/utf8.h"
#include "ridge/io/file.h"
#include "ridge/io/json.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kMostProcesses = 4096, kMostIdle = 1024;
constexpr size_t kMostText = 1000, kMostNotes = 100, kMostEntries = 100;
// Largest number that is accepted, nanoseconds since 1970 included: no sum or difference of two
// overflows.
constexpr int64_t kMostNumber = std::numeric_limits<int64_t>::max() / 2;
constexpr JsonLimits kLimits{.bytes = kMostBytes, .values = size_t{1} << 16, .depth = 8};

bool is_file(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

/// Reads the fields of an object. A member that is missing or of another type leaves the field as
/// it is.
class FactsReader {
 public:
  explicit FactsReader(const JsonValue& object) : object_(object) {}

  void operator()(std::string_view key, std::string& out) const {
    if (const auto* text = find<std::string>(key)) out = shortened(*text);
  }
  void operator()(std::string_view key, bool& out) const {
    if (const bool* flag = find<bool>(key)) out = *flag;
  }
  void operator()(std::string_view key, int64_t& out, int64_t least = 0) const {
    const int64_t* number = find<int64_t>(key);
    if (number != nullptr && *number >= least && *number <= kMostNumber) out = *number;
  }
  /// Reads a class by its number; a number that is too large is the worst class.
  void operator()(std::string_view key, std::optional<SemanticClass>& out) const {
    int64_t number = -1;
    (*this)(key, number);
    if (number >= 0)
      out = static_cast<SemanticClass>(
          std::min(number, static_cast<int64_t>(SemanticClass::kTrajectory)));
  }
  void operator()(std::string_view key, SemanticClass& out) const {
    std::optional<SemanticClass> found = out;
    (*this)(key, found);
    out = *found;
  }
  void operator()(std::string_view key, double& out) const {
    double number = -1;
    if (const double* real = find<double>(key)) number = *real;
    if (const int64_t* whole = find<int64_t>(key)) number = static_cast<double>(*whole);
    if (std::isfinite(number) && number >= 0) out = number;
  }
  void operator()(std::string_view key, std::vector<std::string>& out) const {
    const auto* texts = find<JsonValue::Array>(key);
    if (texts == nullptr) return;
    for (const JsonValue& entry : *texts)
      if (const auto* text = std::get_if<std::string>(&entry.data());
          text != nullptr && out.size() < kMostNotes)
        out.push_back(shortened(*text));
  }
  /// Reads an array of objects.
  template <HasFields T>
  void operator()(std::string_view key, std::vector<T>& out) const {
    const auto* entries = find<JsonValue::Array>(key);
    if (entries == nullptr) return;
    for (const JsonValue& entry : *entries)
      if (std::holds_alternative<JsonValue::Object>(entry.data()) && out.size() < kMostEntries)
        T::fields(out.emplace_back(), FactsReader(entry));
  }
  /// Reads an object.
  template <HasFields T>
  void operator()(std::string_view key, T& out) const {
    const JsonValue* value = object_.find(key);
    if (value != nullptr && std::holds_alternative<JsonValue::Object>(value->data()))
      T::fields(out, FactsReader(*value));
  }

 private:
  template <typename T>
  const T* find(std::string_view key) const {
    const JsonValue* value = object_.find(key);
    return value == nullptr ? nullptr : std::get_if<T>(&value->data());
  }
  static std::string shortened(const std::string& text) {
    size_t end = std::min(text.size(), kMostText);
    while (end > 0 && end < text.size() && (text[end] & 0xc0) == 0x80) --end;
    return text.substr(0, end);
  }

  const JsonValue& object_;
};

/// Returns PID of "facts_PID.json"; nothing for another name.
std::optional<pid_t> process_in(std::string_view name) {
  constexpr std::string_view kBegin = "facts_", kEnd = ".json";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(std::min(name.size(), kEnd.size()));
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || end != name.data() + name.size() || pid <= 0) return std::nullopt;
  return pid;
}

std::optional<ProcessFacts> read_facts(const std::string& path) {
  if (!is_file(path)) return std::nullopt;
  try {
    const JsonValue object = parse_json(read_file(path, kMostBytes), path, kLimits);
    if (!std::holds_alternative<JsonValue::Object>(object.data())) return std::nullopt;
    ProcessFacts facts;
    ProcessFacts::fields(facts, FactsReader(object));
    return facts;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<ProcessFacts> ShimFolder::facts() const {
  std::vector<ProcessFacts> all;
  size_t idle = 0, left_out = 0;
  std::error_code error;
  for (fs::directory_iterator it(path(), error), end; !error && it != end; it.increment(error)) {
    const std::optional<pid_t> pid = process_in(it->path().filename().string());
    if (!pid) continue;
    std::optional<ProcessFacts> facts = read_facts(it->path().string());
    if (!facts) continue;
    // Thousands of workers that import torch must not keep out the one that trains.
    const bool is_idle = facts->steps == 0;
    if (is_idle ? idle >= kMostIdle : all.size() - idle >= kMostProcesses) {
      ++left_out;
      continue;
    }
    idle += is_idle ? 1 : 0;
    facts->pid = *pid;
    const auto path_of = [&](std::string_view kind) {
      std::string path = fmt::format("{}/{}_{}.json", this->path(), kind, *pid);
      return is_file(path) ? path : std::string();
    };
    facts->spans_path = path_of("spans");
    facts->trace_path = path_of("trace");
    facts->stacks_path = path_of("stacks");
    all.push_back(std::move(*facts));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  if (left_out > 0)
    all.front().notes.push_back(
        fmt::format("{} more processes imported torch and are not looked at", left_out));
  return all;
}

}  // namespace ridge::attach
