#include "ridge/doctor/read/nsys_tables.h"

#include <fmt/format.h>

#include <cctype>

namespace ridge::doctor {
namespace {

// Beyond it neither doubles nor JSON would hold a time exactly.
constexpr int64_t kMaxTime = int64_t{1} << 53;

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

NsysTables::NsysTables(SqliteFile& file, TraceBuilder& builder) : file_(file), builder_(builder) {
  static constexpr std::string_view kColumns[] = {"id", "value"};
  each("StringIds", kColumns, [&](const SqliteRow& row) {
    if (const auto id = row.integer(0)) texts_.emplace(*id, row.text(1));
  });
}

void NsysTables::each(std::string_view table,
                      Columns columns,
                      FunctionRef<void(const SqliteRow&)> row) {
  const std::string trouble = file_.scan(table, columns, row);
  if (!trouble.empty()) builder_.warn(fmt::format("{} ends early: {}", table, trouble));
}

std::optional<Interval> NsysTables::times(std::string_view table, const SqliteRow& row) {
  const std::optional<int64_t> start = row.integer(0), end = row.integer(1);
  const auto is_time = [](const std::optional<int64_t>& time) {
    return time && *time >= -kMaxTime && *time <= kMaxTime;
  };
  // CUPTI writes 0 and 0 where it could not tell.
  if (is_time(start) && is_time(end) && (*start != 0 || *end != 0)) return Interval{*start, *end};
  builder_.warn(fmt::format("{}: rows without a start and an end that could be times", table));
  return std::nullopt;
}

const std::string* NsysTables::text(std::optional<int64_t> id) const {
  const auto found = id ? texts_.find(*id) : texts_.end();
  return found == texts_.end() ? nullptr : &found->second;
}

std::string_view NsysTables::text_of(const SqliteRow& row, int column) const {
  if (row.is_text(column)) return row.text(column);
  const std::string* const found = text(row.integer(column));
  return found == nullptr ? std::string_view() : std::string_view(*found);
}

NsysTables::Labels NsysTables::labels(std::string_view table) {
  static constexpr std::string_view kColumns[] = {"id", "name", "label"};
  Labels found;
  each(table, kColumns, [&](const SqliteRow& row) {
    if (const auto id = row.integer(0))
      found[*id] = in_lower_case(std::string(row.text(1)) + " " + std::string(row.text(2)));
  });
  return found;
}

}  // namespace ridge::doctor
