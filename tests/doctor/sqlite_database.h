// SQLite files that tests make.
#pragma once

#include <sqlite3.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ridge::test {

/// A null, a number, or a text.
using SqlValue = std::variant<std::monostate, int64_t, std::string>;

class SqliteDatabase {
 public:
  explicit SqliteDatabase(const std::filesystem::path& path) {
    std::filesystem::remove(path);
    if (sqlite3_open(path.c_str(), &database_) != SQLITE_OK) fail("open");
    run("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF");
  }
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;
  ~SqliteDatabase() { sqlite3_close(database_); }

  void run(const std::string& text) {
    if (sqlite3_exec(database_, text.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail(text);
  }

  void insert(const std::string& table, const std::vector<SqlValue>& row) {
    std::string text = "INSERT INTO " + table + " VALUES (?";
    for (size_t i = 1; i < row.size(); ++i) text += ",?";
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database_, (text + ")").c_str(), -1, &statement, nullptr) != SQLITE_OK)
      fail(text);
    for (size_t i = 0; i < row.size(); ++i) bind(statement, static_cast<int>(i) + 1, row[i]);
    const int code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    if (code != SQLITE_DONE) fail(text);
  }

 private:
  [[noreturn]] void fail(const std::string& text) {
    throw std::runtime_error(text + ": " + sqlite3_errmsg(database_));
  }
  static void bind(sqlite3_stmt* statement, int place, const SqlValue& value) {
    if (const auto* number = std::get_if<int64_t>(&value))
      sqlite3_bind_int64(statement, place, *number);
    else if (const auto* text = std::get_if<std::string>(&value))
      sqlite3_bind_text(
          statement, place, text->data(), static_cast<int>(text->size()), SQLITE_TRANSIENT);
  }

  sqlite3* database_ = nullptr;
};

}  // namespace ridge::test
