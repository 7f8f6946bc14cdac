// The file is written by the program's process, which may do anything to it: what is not wholly as
// it should be counts as not there.
#include "ridge/attach/run_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/io/file.h"
#include "ridge/io/json.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{64} << 20;
constexpr size_t kMostSteps = 100'000, kMostTrouble = 100, kMostText = 1000;
constexpr size_t kMostTensors = 100'000, kMostElements = size_t{1} << 50;
constexpr JsonLimits kLimits{.bytes = kMostBytes, .values = size_t{1} << 20, .depth = 4};
constexpr std::string_view kPlace = "record";

struct Found {
  RunRecord record;
  int64_t rank = -1;
  pid_t pid = 0;
};

double number_of(const JsonValue& value) {
  const auto* word = std::get_if<std::string>(&value.data());
  if (word == nullptr) return value.as_number(kPlace);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (*word == "inf") return kInfinity;
  if (*word == "-inf") return -kInfinity;
  check(*word == "nan", "record: '{}' is no number", word->substr(0, 20));
  return std::numeric_limits<double>::quiet_NaN();
}

class Members {
 public:
  explicit Members(const JsonValue& object) : object_(object) {}

  int64_t integer(std::string_view key) const { return at(key).as_integer(kPlace); }
  bool flag(std::string_view key) const { return at(key).as_bool(kPlace); }
  std::string word(std::string_view key) const {
    const std::string& text = at(key).as_string(kPlace);
    check(text.size() <= kMostText, "record: {} is too long", key);
    return text;
  }
  /// None, or one a step.
  std::vector<double> numbers(std::string_view key, int64_t steps) const {
    const JsonValue::Array& values = at(key).as_array(kPlace);
    check(values.empty() || values.size() == static_cast<size_t>(steps),
          "record: {} of {} steps has {} values",
          key,
          steps,
          values.size());
    std::vector<double> numbers;
    numbers.reserve(values.size());
    for (const JsonValue& value : values) numbers.push_back(number_of(value));
    return numbers;
  }
  const JsonValue::Array& array(std::string_view key) const { return at(key).as_array(kPlace); }
  std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> texts;
    for (const JsonValue& value : at(key).as_array(kPlace)) {
      const std::string& text = value.as_string(kPlace);
      if (texts.size() < kMostTrouble && text.size() <= kMostText) texts.push_back(text);
    }
    return texts;
  }

 private:
  const JsonValue& at(std::string_view key) const { return object_.at(key, kPlace); }

  const JsonValue& object_;
};

TensorUpdates updates_in(const JsonValue& object) {
  const Members members(object);
  TensorUpdates tensor;
  tensor.name = members.word("name");
  tensor.elements = members.integer("elements");
  check(tensor.elements >= 0 && tensor.elements <= static_cast<int64_t>(kMostElements),
        "record: a tensor of {} elements",
        tensor.elements);
  tensor.is_buffer = members.flag("is_buffer");
  const auto steps = static_cast<int64_t>(members.array("sizes").size());
  const int64_t projections = TensorUpdates::kDirections * steps;
  tensor.sizes = members.numbers("sizes", steps);
  tensor.updates = members.numbers("updates", steps);
  tensor.update_projections = members.numbers("update_projections", projections);
  tensor.along = members.numbers("along", steps);
  tensor.gradients = members.numbers("gradients", steps);
  tensor.gradient_projections = members.numbers("gradient_projections", projections);
  tensor.along_gradients = members.numbers("along_gradients", steps);
  check(tensor.updates.size() == tensor.sizes.size() &&
            tensor.along.size() == tensor.sizes.size() &&
            tensor.along_gradients.size() == tensor.sizes.size() &&
            tensor.gradients.size() == tensor.sizes.size() &&
            tensor.update_projections.size() == tensor.gradient_projections.size() &&
            tensor.update_projections.size() == static_cast<size_t>(projections),
        "record: updates of different numbers of steps");
  return tensor;
}

Found found_in(const JsonValue& object) {
  const Members members(object);
  Found found;
  found.rank = members.integer("rank");
  RunRecord& record = found.record;
  record.steps = members.integer("steps");
  check(record.steps >= 0 && record.steps <= static_cast<int64_t>(kMostSteps),
        "record: of {} steps",
        record.steps);
  record.is_whole = members.flag("is_whole");
  record.source = members.word("source");
  record.losses = members.numbers("losses", record.steps);
  record.gradient_norms = members.numbers("gradient_norms", record.steps);
  record.output_counts = members.numbers("output_counts", record.steps);
  record.output_sums = members.numbers("output_sums", record.steps);
  record.output_squares = members.numbers("output_squares", record.steps);
  record.output_projections = members.numbers("output_projections", record.steps);
  const size_t outputs = record.output_counts.size();
  check(record.output_sums.size() == outputs && record.output_squares.size() == outputs &&
            record.output_projections.size() == outputs,
        "record: outputs of different numbers of calls");
  for (const double count : record.output_counts)
    check(count >= 0 && count < 1e18, "record: {} outputs", count);
  record.parameters_hash = members.word("parameters_hash");
  record.outputs_hash = members.word("outputs_hash");
  const JsonValue::Array& tensors = members.array("updates");
  check(tensors.size() <= kMostTensors, "record: updates of {} tensors", tensors.size());
  for (const JsonValue& tensor : tensors) record.updates.push_back(updates_in(tensor));
  const JsonValue::Array& hashes = members.array("batch_hashes");
  check(hashes.empty() || hashes.size() == static_cast<size_t>(record.steps),
        "record: batches of {} steps have {} hashes",
        record.steps,
        hashes.size());
  for (const JsonValue& hash : hashes) {
    record.batch_hashes.push_back(hash.as_string(kPlace));
    check(record.batch_hashes.back().size() <= kMostText,
          "record: the hash of a batch is too long");
  }
  record.is_coarse = members.flag("is_coarse");
  record.trouble = members.texts("trouble");
  return found;
}

/// Returns PID of "record_PID.json"; 0 for another name.
pid_t process_in(std::string_view name) {
  constexpr std::string_view kBegin = "record_", kEnd = ".json";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return 0;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(std::min(name.size(), kEnd.size()));
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc() && end == name.data() + name.size() && pid > 0 ? pid : 0;
}

std::optional<Found> read(const fs::path& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  try {
    const std::string name = path.string();
    return found_in(parse_json(read_file(name, kMostBytes), name, kLimits));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

/// Ranks above 0 come last, then who did more is it.
bool is_before(const Found& a, const Found& b) {
  if ((a.rank > 0) != (b.rank > 0)) return b.rank > 0;
  if (a.record.steps != b.record.steps) return a.record.steps > b.record.steps;
  return a.pid < b.pid;
}

}  // namespace

std::optional<RunRecord> read_record_in(const std::string& folder) {
  std::optional<Found> best;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const pid_t pid = process_in(it->path().filename().string());
    if (pid == 0) continue;
    std::optional<Found> found = read(it->path());
    if (!found) continue;
    found->pid = pid;
    if (!best || is_before(*found, *best)) best = std::move(found);
  }
  if (!best) return std::nullopt;
  return std::move(best->record);
}

std::optional<RunRecord> read_record(const ShimFolder& folder) {
  return read_record_in(folder.path());
}

}  // namespace ridge::attach
