#include "ridge/run/choice_cache.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <charconv>
#include <cmath>
#include <system_error>

namespace ridge {
namespace {

// Other processes may hold the file for a moment.
constexpr int kBusyMs = 2000;

// The form of the table: another number, another file.
constexpr int kForm = 1;

constexpr const char* kMake =
    "CREATE TABLE IF NOT EXISTS choices (machine TEXT NOT NULL, node TEXT NOT NULL, pick INTEGER "
    "NOT "
    "NULL, candidates TEXT NOT NULL, PRIMARY KEY (machine, node)) WITHOUT ROWID";
constexpr const char* kFind =
    "SELECT pick, candidates FROM choices WHERE machine = ?1 AND node = ?2";
constexpr const char* kKeep = "INSERT OR REPLACE INTO choices VALUES (?1, ?2, ?3, ?4)";

// "name\tseconds\tnote\n" for each. Notes are our own and hold neither tab nor new line.
std::string written(const std::vector<CandidateTime>& candidates) {
  std::string text;
  for (const CandidateTime& each : candidates)
    text += fmt::format("{}\t{}\t{}\n", each.name, each.seconds, each.note);
  return text;
}

// False for a text that is not of that form: the file may hold anything.
bool read(std::string_view text, std::vector<CandidateTime>& candidates) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    const std::string_view line = text.substr(0, end);
    const size_t first = line.find('\t');
    const size_t second = first == std::string_view::npos ? first : line.find('\t', first + 1);
    if (second == std::string_view::npos) return false;
    CandidateTime candidate{.name = std::string(line.substr(0, first)),
                            .note = std::string(line.substr(second + 1))};
    const auto [at, error] =
        std::from_chars(line.data() + first + 1, line.data() + second, candidate.seconds);
    if (error != std::errc() || at != line.data() + second) return false;
    if (!std::isfinite(candidate.seconds) || candidate.seconds < 0) return false;
    candidates.push_back(std::move(candidate));
    text.remove_prefix(end + 1);
  }
  return !candidates.empty();
}

}  // namespace

struct ChoiceCache::Database {
  sqlite3* file = nullptr;
  sqlite3_stmt* find = nullptr;
  sqlite3_stmt* keep = nullptr;

  ~Database() {
    sqlite3_finalize(find);
    sqlite3_finalize(keep);
    sqlite3_close(file);
  }

  bool open(const std::string& path, CacheAccess access) {
    const int flags = access == CacheAccess::kRead ? SQLITE_OPEN_READONLY
                                                   : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    if (sqlite3_open_v2(path.c_str(), &file, flags | SQLITE_OPEN_NOMUTEX, nullptr) != SQLITE_OK)
      return false;
    sqlite3_busy_timeout(file, kBusyMs);
    if (access == CacheAccess::kRead) return prepare(kFind, find);
    // A loss of power may cost what was measured last.
    const bool is_made = run("PRAGMA synchronous = OFF") && run(kMake);
    return is_made && prepare(kFind, find) && prepare(kKeep, keep);
  }
  bool run(const char* text) {
    return sqlite3_exec(file, text, nullptr, nullptr, nullptr) == SQLITE_OK;
  }
  bool prepare(const char* text, sqlite3_stmt*& statement) {
    return sqlite3_prepare_v2(file, text, -1, &statement, nullptr) == SQLITE_OK;
  }
  static void bind(sqlite3_stmt* statement, int place, std::string_view text) {
    sqlite3_bind_text(
        statement, place, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
};

ChoiceCache::ChoiceCache(const std::filesystem::path& folder,
                         std::string machine,
                         CacheAccess access)
    : machine_(std::move(machine)) {
  if (folder.empty()) {
    note_ = "times of kernels are not kept: neither XDG_CACHE_HOME nor HOME names a folder";
    return;
  }
  std::error_code error;
  const std::filesystem::path path = folder / fmt::format("choices-{}.sqlite", kForm);
  if (access == CacheAccess::kReadAndWrite)
    std::filesystem::create_directories(folder, error);
  else if (!std::filesystem::exists(path, error))
    return;
  database_ = std::make_unique<Database>();
  if (!database_->open(path.string(), access)) fail("cannot be opened");
}

ChoiceCache::~ChoiceCache() = default;

void ChoiceCache::fail(std::string_view what) {
  const char* path = sqlite3_db_filename(database_->file, "main");
  note_ = fmt::format("times of kernels are not kept: '{}' {}: {}",
                      path == nullptr ? "" : path,
                      what,
                      sqlite3_errmsg(database_->file));
  database_.reset();
}

bool ChoiceCache::find(std::string_view node, NodeTimes& times) {
  if (database_ == nullptr) return false;
  sqlite3_stmt* statement = database_->find;
  Database::bind(statement, 1, machine_);
  Database::bind(statement, 2, node);
  const int code = sqlite3_step(statement);
  bool is_found = false;
  if (code == SQLITE_ROW) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 1));
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, 1));
    const auto pick = static_cast<uint64_t>(sqlite3_column_int64(statement, 0));
    NodeTimes read_times;
    if (text != nullptr && read({text, size}, read_times.candidates) &&
        pick < read_times.candidates.size()) {
      read_times.pick = pick;
      times = std::move(read_times);
      is_found = true;
    }
  }
  sqlite3_reset(statement);
  if (code != SQLITE_ROW && code != SQLITE_DONE) fail("cannot be read");
  return is_found;
}

void ChoiceCache::keep(std::string_view node, const NodeTimes& times) {
  if (database_ == nullptr || database_->keep == nullptr) return;
  sqlite3_stmt* statement = database_->keep;
  Database::bind(statement, 1, machine_);
  Database::bind(statement, 2, node);
  sqlite3_bind_int64(statement, 3, static_cast<int64_t>(times.pick));
  Database::bind(statement, 4, written(times.candidates));
  const int code = sqlite3_step(statement);
  sqlite3_reset(statement);
  if (code != SQLITE_DONE) fail("cannot be written");
}

}  // namespace ridge
