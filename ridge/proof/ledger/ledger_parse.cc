// Reading a ledger: every line is as hostile as the file.
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/json_fields.h"
#include "ridge/base/named_enum.h"
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

// Reads the fields of one object of a line; `where` names it in messages. UserError for a field
// that is missing, of another type, or out of its bounds.
class Reader {
 public:
  Reader(const JsonValue& object, std::string where) : object_(object), where_(std::move(where)) {
    object_.as_object(where_);
  }

  const std::string& where() const { return where_; }
  std::string place(std::string_view key) const { return fmt::format("{}: {}", where_, key); }
  bool has(std::string_view key) const { return object_.find(key) != nullptr; }
  std::string text(std::string_view key) const { return at(key).as_string(place(key)); }

  void operator()(std::string_view key, std::string& out) const { out = text(key); }
  void operator()(std::string_view key, bool& out) const { out = at(key).as_bool(place(key)); }
  void operator()(std::string_view key, double& out, double low, double high) const {
    out = at(key).as_number(place(key));
    check(out >= low && out <= high, "{}: {} is not in {} to {}", place(key), out, low, high);
  }
  void operator()(std::string_view key, int64_t& out, int64_t low, int64_t high) const {
    out = at(key).as_integer(place(key));
    check(out >= low && out <= high, "{}: {} is not in {} to {}", place(key), out, low, high);
  }
  void operator()(std::string_view key, uint64_t& out) const {
    if (const auto* large = std::get_if<uint64_t>(&at(key).data())) {
      out = *large;
      return;
    }
    int64_t number = 0;
    (*this)(key, number, 0, kHighestCount);
    out = static_cast<uint64_t>(number);
  }
  template <NamedEnum E>
  void operator()(std::string_view key, E& out) const {
    const std::string name = text(key);
    const std::optional<E> value = parse_name<E>(name);
    check(value.has_value(), "{}: unknown '{}'", place(key), name.substr(0, 60));
    out = *value;
  }
  void operator()(std::string_view key, std::array<double, 4>& out) const {
    const JsonValue::Array& seconds = at(key).as_array(place(key));
    check(seconds.size() == out.size(),
          "{}: {} blocks, not {}",
          place(key),
          seconds.size(),
          out.size());
    for (size_t i = 0; i < seconds.size(); ++i) {
      out[i] = seconds[i].as_number(place(key));
      check(out[i] > 0 && out[i] < kMostSeconds, "{}: no time of a block: {}", place(key), out[i]);
    }
  }
  void operator()(std::string_view key, std::vector<PairRecord>& out) const {
    const JsonValue::Array& blocks = at(key).as_array(place(key));
    check(blocks.size() <= kMostPairs, "{}: more than {}", place(key), kMostPairs);
    for (size_t i = 0; i < blocks.size(); ++i)
      PairRecord::fields(out.emplace_back(),
                         Reader(blocks[i], fmt::format("{}[{}]", place(key), i)));
  }
  template <HasFields T>
  void operator()(std::string_view key, T& out) const {
    T::fields(out, Reader(at(key), place(key)));
  }
  /// Null where there is no value.
  template <typename T, typename... Bounds>
  void operator()(std::string_view key, std::optional<T>& out, const Bounds&... bounds) const {
    if (!std::holds_alternative<std::nullptr_t>(at(key).data()))
      (*this)(key, out.emplace(), bounds...);
  }

  /// A field that older ledgers lack stays as it is.
  void added(std::string_view key, auto& out, const auto&... bounds) const {
    if (has(key)) (*this)(key, out, bounds...);
  }
  /// The blocks have been read by then.
  void count(std::string_view key, int64_t number) const {
    int64_t told = 0;
    (*this)(key, told, 0, kHighestCount);
    check(told == number, "{}: pairs and dropped are not the numbers of blocks", where_);
  }
  void either(std::string_view key, bool& out, std::string_view yes, std::string_view no) const {
    const std::string word = text(key);
    check(word == yes || word == no, "{}: neither {} nor {}", place(key), yes, no);
    out = word == yes;
  }

 private:
  const JsonValue& at(std::string_view key) const { return object_.at(key, where_); }

  const JsonValue& object_;
  std::string where_;
};

LedgerRun read_run(const Reader& line) {
  const std::string schema = line.text("schema");
  if (schema != "ridge.ledger/1")
    throw UserError(
        fmt::format("{}: '{}' is not ridge.ledger/1", line.place("schema"), schema.substr(0, 60)),
        "use the version of ridge that wrote it");
  LedgerRun run;
  LedgerRun::fields(run, line);
  return run;
}

void check_ratio(const PairRecord& pair, double work, const std::string& where) {
  check(std::abs(pair.log_ratio - log_ratio_of(pair, work)) <= kRatioError,
        "{}: log_ratio: {} is not that of its blocks, which is {}",
        where,
        pair.log_ratio,
        log_ratio_of(pair, work));
}

TrialRecord read_trial(const Reader& line) {
  TrialRecord record;
  TrialRecord::block_fields(record, line);
  // Ledgers of before there was a work had the same steps on both sides.
  if (!line.has("after_block_steps")) record.after_block_steps = record.block_steps;
  for (size_t i = 0; i < record.pairs.size(); ++i)
    check_ratio(record.pairs[i], record.work, fmt::format("{}: blocks[{}]", line.where(), i));
  TrialRecord::fields(record, line);
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
