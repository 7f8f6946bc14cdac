#include "ridge/doctor/read/sqlite_file.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "ridge/base/error.h"

namespace ridge::doctor {
namespace {

constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr size_t kHeaderBytes = 100;

// A row of a trace has times, a thread and a name. Fewer bytes are no row of its own.
constexpr int64_t kRowBytes = 12;
constexpr int64_t kRowsAlways = 1000;

// Steps of SQLite's machine between two calls of tick(), and how many there may be. A row takes a
// few dozen steps, so that an honest file uses a small part of them.
constexpr int kTickSteps = 20000;
constexpr int64_t kTicksAlways = 1000;

constexpr size_t kMaxTables = 2000;

// A file name as a URI; immutable=1 makes SQLite look at no journal beside the file.
std::string uri_of(const std::string& path) {
  std::string uri = "file:";
  for (const char c : std::filesystem::absolute(path).string()) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '/' || c == '.' || c == '_' || c == '-')
      uri += c;
    else
      uri += fmt::format("%{:02X}", byte);
  }
  return uri + "?immutable=1";
}

std::string in_quotes(std::string_view name) {
  std::string text = "\"";
  for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

uint32_t big_endian(std::string_view bytes) {
  uint32_t number = 0;
  for (const char c : bytes) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

// Reading tables, and asking for their columns: nothing else, whatever the file's schema says.
int permit(void*, int action, const char* first, const char*, const char*, const char*) {
  if (action == SQLITE_SELECT || action == SQLITE_READ) return SQLITE_OK;
  if (action == SQLITE_PRAGMA && first != nullptr && std::string_view(first) == "table_info")
    return SQLITE_OK;
  return SQLITE_DENY;
}

void limit(sqlite3* database) {
  sqlite3_limit(database, SQLITE_LIMIT_LENGTH, 4 << 20);
  sqlite3_limit(database, SQLITE_LIMIT_SQL_LENGTH, 100000);
  sqlite3_limit(database, SQLITE_LIMIT_COLUMN, 500);
  sqlite3_limit(database, SQLITE_LIMIT_EXPR_DEPTH, 50);
  sqlite3_limit(database, SQLITE_LIMIT_COMPOUND_SELECT, 3);
  sqlite3_limit(database, SQLITE_LIMIT_VDBE_OP, 25000);
  sqlite3_limit(database, SQLITE_LIMIT_FUNCTION_ARG, 8);
  sqlite3_limit(database, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(database, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50);
  sqlite3_limit(database, SQLITE_LIMIT_VARIABLE_NUMBER, 10);
  sqlite3_limit(database, SQLITE_LIMIT_TRIGGER_DEPTH, 1);
  sqlite3_limit(database, SQLITE_LIMIT_WORKER_THREADS, 0);
}

}  // namespace

bool SqliteRow::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

bool SqliteRow::is_text(int column) const {
  const int type = sqlite3_column_type(statement_, column);
  return type == SQLITE_TEXT || type == SQLITE_BLOB;
}

std::optional<int64_t> SqliteRow::integer(int column) const {
  const int type = sqlite3_column_type(statement_, column);
  if (type == SQLITE_INTEGER) return sqlite3_column_int64(statement_, column);
  if (type != SQLITE_FLOAT) return std::nullopt;
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const double number = sqlite3_column_double(statement_, column);
  if (!(std::abs(number) <= kExact) || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::string_view SqliteRow::text(int column) const {
  if (!is_text(column)) return {};
  const void* bytes = sqlite3_column_text(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  if (bytes == nullptr || size <= 0) return {};
  return {static_cast<const char*>(bytes), static_cast<size_t>(size)};
}

SqliteFile::SqliteFile(const std::string& path) {
  check_header(path);
  rows_left_ = kRowsAlways + bytes_ / kRowBytes;
  ticks_left_ = kTicksAlways + bytes_ / 1000;
  constexpr int kFlags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
  const int code = sqlite3_open_v2(uri_of(path).c_str(), &database_, kFlags, nullptr);
  if (code != SQLITE_OK) {
    const std::string why = sqlite3_errstr(code);
    sqlite3_close(database_);
    throw UserError(fmt::format("cannot open '{}': {}", path, why));
  }
  defend();
  list_tables();
}

SqliteFile::~SqliteFile() { sqlite3_close(database_); }

void SqliteFile::check_header(const std::string& path) {
  std::error_code error;
  check(std::filesystem::is_regular_file(path, error), "cannot open '{}': no such file", path);
  std::ifstream file(path, std::ios::binary);
  std::string header(kHeaderBytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  check(file.gcount() > 0, "cannot read '{}': it is empty or not readable", path);
  check(file.gcount() == static_cast<std::streamsize>(kHeaderBytes) && header.starts_with(kMagic),
        "cannot read '{}': no SQLite database",
        path);
  const auto size = std::filesystem::file_size(path, error);
  check(!error, "cannot read '{}': {}", path, error.message());
  bytes_ = static_cast<int64_t>(size);
  const uint32_t stored = big_endian(std::string_view(header).substr(16, 2));
  const int64_t page = stored == 1 ? 65536 : stored;
  const int64_t pages = big_endian(std::string_view(header).substr(28, 4));
  is_truncated_ = page * pages > bytes_;
}

void SqliteFile::defend() {
  limit(database_);
  sqlite3_progress_handler(database_, kTickSteps, &SqliteFile::tick, this);
  // SQLite refuses a file that was cut off, unless its schema may be written; and as the connection
  // is read-only, that permits no writing.
  const int is_cut = is_truncated_ ? 1 : 0;
  sqlite3_db_config(database_, SQLITE_DBCONFIG_WRITABLE_SCHEMA, is_cut, static_cast<int*>(nullptr));
  sqlite3_db_config(database_, SQLITE_DBCONFIG_DEFENSIVE, 1 - is_cut, static_cast<int*>(nullptr));
  for (const int off : {SQLITE_DBCONFIG_TRUSTED_SCHEMA,
                        SQLITE_DBCONFIG_ENABLE_TRIGGER,
                        SQLITE_DBCONFIG_ENABLE_VIEW,
                        SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION,
                        SQLITE_DBCONFIG_DQS_DML,
                        SQLITE_DBCONFIG_DQS_DDL})
    sqlite3_db_config(database_, off, 0, static_cast<int*>(nullptr));
  // These touch no page of the file.
  sqlite3_exec(database_, "PRAGMA query_only = ON", nullptr, nullptr, nullptr);
  sqlite3_exec(database_, "PRAGMA cell_size_check = ON", nullptr, nullptr, nullptr);
  sqlite3_exec(database_, "PRAGMA mmap_size = 0", nullptr, nullptr, nullptr);
  sqlite3_exec(database_, "PRAGMA temp_store = MEMORY", nullptr, nullptr, nullptr);
  sqlite3_set_authorizer(database_, permit, nullptr);
}

int SqliteFile::tick(void* self) { return --static_cast<SqliteFile*>(self)->ticks_left_ < 0; }

void SqliteFile::list_tables() {
  std::set<std::string> names;
  trouble_ = run("SELECT type, name, rootpage FROM sqlite_schema", [&](const SqliteRow& row) {
    const std::string name(row.text(1));
    if (name.empty() || name.find('\0') != std::string::npos) return;
    // A virtual table has no page.
    if (row.text(0) == "table" && row.integer(2).value_or(0) > 0)
      names.insert(name);
    else if (row.text(0) == "table" || row.text(0) == "view")
      refused_.insert(name);
  });
  if (trouble_.empty() && names.size() > kMaxTables) trouble_ = "too many tables";
  if (names.size() > kMaxTables) return;
  for (const std::string& each : names) list_columns(each);
}

void SqliteFile::list_columns(const std::string& table) {
  // Generated columns are not among them.
  std::set<std::string, std::less<>> columns;
  const std::string trouble = run(fmt::format("PRAGMA table_info({})", in_quotes(table)),
                                  [&](const SqliteRow& row) { columns.emplace(row.text(1)); });
  if (trouble.empty() && !columns.empty()) tables_.emplace(table, std::move(columns));
}

bool SqliteFile::has_column(std::string_view table, std::string_view column) const {
  const auto found = tables_.find(table);
  return found != tables_.end() && found->second.contains(column);
}

std::string SqliteFile::scan(std::string_view table,
                             std::span<const std::string_view> columns,
                             FunctionRef<void(const SqliteRow&)> row) {
  if (!has_table(table)) return {};
  std::string text = "SELECT ";
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) text += ", ";
    text += has_column(table, columns[i]) ? in_quotes(columns[i]) : std::string("NULL");
  }
  return run(text + " FROM main." + in_quotes(table) + " NOT INDEXED", row);
}

std::string SqliteFile::run(const std::string& text, FunctionRef<void(const SqliteRow&)> row) {
  sqlite3_stmt* raw = nullptr;
  int code = sqlite3_prepare_v2(database_, text.c_str(), -1, &raw, nullptr);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
  if (code != SQLITE_OK) return sqlite3_errmsg(database_);
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    if (--rows_left_ < 0) return "it claims more rows than its bytes can hold";
    row(SqliteRow(raw));
  }
  if (code == SQLITE_INTERRUPT) return "it takes more work than its bytes can need";
  return code == SQLITE_DONE ? std::string() : std::string(sqlite3_errmsg(database_));
}

}  // namespace ridge::doctor
