// Reading a ledger: every line is as hostile as the file.
#include <cmath>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/io/json.h"
#include "ridge/proof/ledger/ledger.h"

namespace ridge {
namespace {

constexpr size_t kLongestLedger = size_t{256} << 20;
constexpr size_t kLongestLine = size_t{4} << 20;
constexpr size_t kMostTrials = 100000;
constexpr JsonLimits kLimits{.bytes = kLongestLine, .values = 16 * kMostPairs, .depth = 6};
// Times are written to the last digit, so only another logarithm could differ.
constexpr double kRatioError = 1e-9;

// One object of a line, and what to call it in messages.
class Reader {
 public:
  Reader(const JsonValue& object, std::string where) : object_(object), where_(std::move(where)) {
    object_.as_object(where_);
  }

  const std::string& where() const { return where_; }
  const JsonValue& at(std::string_view key) const { return object_.at(key, where_); }
  std::string place(std::string_view key) const { return fmt::format("{}: {}", where_, key); }

  std::string text(std::string_view key) const { return at(key).as_string(place(key)); }
  bool boolean(std::string_view key) const { return at(key).as_bool(place(key)); }
  Reader object(std::string_view key) const { return {at(key), place(key)}; }
  bool has(std::string_view key) const { return object_.find(key) != nullptr; }
  bool is_null(std::string_view key) const {
    return std::holds_alternative<std::nullptr_t>(at(key).data());
  }

  double number(std::string_view key, double low, double high) const {
    const double value = at(key).as_number(place(key));
    check(value >= low && value <= high, "{}: {} is not in {} to {}", place(key), value, low, high);
    return value;
  }
  int64_t integer(std::string_view key, int64_t low, int64_t high) const {
    const int64_t value = at(key).as_integer(place(key));
    check(value >= low && value <= high, "{}: {} is not in {} to {}", place(key), value, low, high);
    return value;
  }

 private:
  const JsonValue& object_;
  std::string where_;
};

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr double kLongest = 1e12;  // seconds
constexpr double kFastest = 1e30;  // factors of speed
constexpr double kLeastWork = 1e-9;

uint64_t read_seed(const Reader& line) {
  const JsonValue& seed = line.at("seed");
  if (const auto* large = std::get_if<uint64_t>(&seed.data())) return *large;
  return static_cast<uint64_t>(line.integer("seed", 0, kMost));
}

LedgerRun read_run(const Reader& line) {
  const std::string schema = line.text("schema");
  if (schema != "ridge.ledger/1")
    throw UserError(
        fmt::format("{}: '{}' is not ridge.ledger/1", line.place("schema"), schema.substr(0, 60)),
        "use the version of ridge that wrote it");
  return {.target = line.text("target"),
          .config = line.text("config"),
          .config_hash = line.text("config_hash"),
          .machine = line.text("machine"),
          .version = line.text("version"),
          .started = line.text("started"),
          .budget_s = line.number("budget_s", 0, kLongest),
          .seed = read_seed(line)};
}

PairRecord read_pair(const Reader& block, double work) {
  PairRecord pair;
  const std::string order = block.text("order");
  check(order == "ABBA" || order == "BAAB", "{}: neither ABBA nor BAAB", block.place("order"));
  pair.before_outside = order == "ABBA";
  pair.dropped = block.boolean("dropped");
  const JsonValue::Array& seconds = block.at("seconds").as_array(block.place("seconds"));
  check(seconds.size() == pair.seconds.size(),
        "{}: {} blocks, not {}",
        block.place("seconds"),
        seconds.size(),
        pair.seconds.size());
  for (size_t i = 0; i < seconds.size(); ++i) {
    pair.seconds[i] = seconds[i].as_number(block.place("seconds"));
    check(pair.seconds[i] > 0 && pair.seconds[i] < kLongest,
          "{}: no time of a block: {}",
          block.place("seconds"),
          pair.seconds[i]);
  }
  pair.log_ratio = block.number("log_ratio", -kLongest, kLongest);
  check(std::abs(pair.log_ratio - log_ratio_of(pair, work)) <= kRatioError,
        "{}: {} is not that of its blocks, which is {}",
        block.place("log_ratio"),
        pair.log_ratio,
        log_ratio_of(pair, work));
  return pair;
}

std::vector<PairRecord> read_pairs(const Reader& line, double work) {
  const JsonValue::Array& blocks = line.at("blocks").as_array(line.place("blocks"));
  check(blocks.size() <= kMostPairs, "{}: more than {}", line.place("blocks"), kMostPairs);
  std::vector<PairRecord> pairs;
  for (const JsonValue& block : blocks)
    pairs.push_back(
        read_pair({block, fmt::format("{}: blocks[{}]", line.where(), pairs.size())}, work));
  return pairs;
}

JudgeOptions read_judge(const Reader& judge) {
  return {.worth = judge.number("worth", -1, 1),
          .hope = judge.number("hope", -1, 1),
          .accept_error = judge.number("accept_error", 1e-12, 1),
          .reject_error = judge.number("reject_error", 1e-12, 1)};
}

// The name of an enumerator under `key`.
template <typename T>
T read_name(const Reader& line, std::string_view key, std::optional<T> (*parse)(std::string_view)) {
  const std::string name = line.text(key);
  const std::optional<T> value = parse(name);
  check(value.has_value(), "{}: unknown '{}'", line.place(key), name.substr(0, 60));
  return *value;
}

void read_speeds(const Reader& line, TrialRecord& record) {
  if (!line.is_null("predicted")) {
    const Reader predicted = line.object("predicted");
    record.predicted = {predicted.number("lo", 0, kFastest), predicted.number("hi", 0, kFastest)};
  }
  if (!line.is_null("ceiling")) record.ceiling = line.number("ceiling", 0, kFastest);
  if (!line.is_null("measured")) {
    const Reader measured = line.object("measured");
    record.measured = {.low = measured.number("lo", 0, kFastest),
                       .mid = measured.number("mid", 0, kFastest),
                       .high = measured.number("hi", 0, kFastest),
                       .confidence = measured.number("confidence", 0, 1)};
  }
}

// Ledgers of before there was a work had the same steps on both sides.
void read_blocks(const Reader& line, TrialRecord& record) {
  record.block_steps = record.after_block_steps = line.integer("block_steps", 0, kMost);
  if (line.has("after_block_steps"))
    record.after_block_steps = line.integer("after_block_steps", 0, kMost);
  if (line.has("work")) record.work = line.number("work", kLeastWork, 1 / kLeastWork);
  record.pairs = read_pairs(line, record.work);
}

TrialRecord read_trial(const Reader& line) {
  TrialRecord record;
  record.number = line.integer("number", 1, kMost);
  record.technique = line.text("technique");
  record.change = line.text("change");
  record.semantic_class = read_name(line, "class", parse_semantic_class);
  record.hypothesis = line.text("hypothesis");
  read_speeds(line, record);
  read_blocks(line, record);
  record.judge = read_judge(line.object("judge"));
  record.verdict = read_name(line, "verdict", parse_trial_verdict);
  record.reason = line.text("reason");
  record.guard = line.text("guard");
  record.recipe_before = line.text("recipe_before");
  record.recipe = line.text("recipe");
  record.recipe_hash = line.text("recipe_hash");
  record.plan_hash = line.text("plan_hash");
  record.machine = line.text("machine");
  record.started = line.text("started");
  record.seconds = line.number("seconds", 0, kLongest);
  check(line.integer("pairs", 0, kMost) == record.judged_pairs() &&
            line.integer("dropped", 0, kMost) == record.dropped_pairs(),
        "{}: pairs and dropped are not the numbers of blocks",
        line.where());
  return record;
}

void add_trial(Ledger& ledger, const Reader& line) {
  check(ledger.trials.size() < kMostTrials, "{}: more than {} trials", line.where(), kMostTrials);
  TrialRecord record = read_trial(line);
  check(ledger.trials.empty() || record.number > ledger.trials.back().number,
        "{}: trial {} comes after trial {}",
        line.where(),
        record.number,
        ledger.trials.empty() ? 0 : ledger.trials.back().number);
  ledger.trials.push_back(std::move(record));
}

// The value of the line; nothing where it is the unfinished last one.
std::optional<JsonValue> read_line(std::string_view line, const std::string& where, bool is_whole) {
  try {
    return parse_json(line, where, kLimits);
  } catch (const UserError&) {
    if (is_whole) throw;
    return std::nullopt;
  }
}

}  // namespace

Ledger parse_ledger(std::string_view text, std::string_view name) {
  Ledger ledger;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string where = fmt::format("{}:{}", name, number);
    const std::optional<JsonValue> value =
        read_line(text.substr(0, end), where, end != std::string_view::npos || number == 1);
    if (!value) {
      ledger.note = fmt::format(
          "{}: the last line is cut off; its {} bytes are left out", where, text.size());
      return ledger;
    }
    const Reader line(*value, where);
    if (number == 1)
      ledger.run = read_run(line);
    else
      add_trial(ledger, line);
    if (end == std::string_view::npos) return ledger;
    text.remove_prefix(end + 1);
    if (text.empty()) return ledger;
  }
  throw UserError(fmt::format("{}: the ledger is empty", name),
                  "give the ledger.jsonl of a run of ridge optimize");
}

Ledger read_ledger_file(const std::filesystem::path& path) {
  return parse_ledger(read_file(path, kLongestLedger), valid_utf8(path.string()));
}

}  // namespace ridge
