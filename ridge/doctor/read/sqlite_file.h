// A SQLite database that somebody else wrote, read as hostile: tables alone, row by row, bounded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/function_ref.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ridge::doctor {

/// A row of a scan, while its callback runs. Columns count as they were asked for.
class SqliteRow {
 public:
  explicit SqliteRow(sqlite3_stmt* statement) : statement_(statement) {}
  bool is_null(int column) const;
  bool is_text(int column) const;
  /// Empty for what is no whole number of 64 bits.
  std::optional<int64_t> integer(int column) const;
  /// Empty for what is neither text nor bytes. Valid until the callback returns.
  std::string_view text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

/// Opens read-only, without journals, and with triggers, views, virtual tables, functions and
/// generated columns out of reach. Nothing in the file decides what is executed.
class SqliteFile {
 public:
  /// UserError: cannot be opened, or is no database.
  explicit SqliteFile(const std::string& path);
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;
  ~SqliteFile();

  /// True for plain tables alone.
  bool has_table(std::string_view table) const { return tables_.contains(table); }
  bool has_column(std::string_view table, std::string_view column) const;
  /// Views and virtual tables: never read.
  const std::set<std::string, std::less<>>& refused() const { return refused_; }
  /// The file is shorter than its header says.
  bool is_truncated() const { return is_truncated_; }
  /// The error of reading the tables' names; empty when it went well.
  const std::string& trouble() const { return trouble_; }

  /// Calls `row` for each row of a table that exists, in the file's order; columns that it does
  /// not have are null. Returns why it ended early, or an empty text. More rows than fit in the
  /// file's bytes (pages that are used again and again) are such a reason.
  std::string scan(std::string_view table,
                   std::span<const std::string_view> columns,
                   FunctionRef<void(const SqliteRow&)> row);

 private:
  void check_header(const std::string& path);
  void defend();
  void list_tables();
  void list_columns(const std::string& table);
  std::string run(const std::string& text, FunctionRef<void(const SqliteRow&)> row);
  static int tick(void* self);

  sqlite3* database_ = nullptr;
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> tables_;
  std::set<std::string, std::less<>> refused_;
  std::string trouble_;
  bool is_truncated_ = false;
  int64_t bytes_ = 0;
  int64_t rows_left_ = 0;
  int64_t ticks_left_ = 0;
};

}  // namespace ridge::doctor
