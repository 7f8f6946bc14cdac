#include "ridge/io/csv_scanner.h"

#include "ridge/base/error.h"

namespace ridge {

CsvScanner::CsvScanner(std::string_view text, char separator, std::string_view source)
    : text_(text), separator_(separator), source_(source) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
}

void CsvScanner::fail(std::string_view problem) const {
  throw UserError(fmt::format("{}:{}:{}: {}", source_, line_, at_ - line_start_ + 1, problem));
}

bool CsvScanner::at_line_end() const { return text_[at_] == '\n' || text_[at_] == '\r'; }

/// Steps over a line end: LF, CRLF or CR.
void CsvScanner::end_line() {
  at_ += text_.substr(at_).starts_with("\r\n") ? 2 : 1;
  line_start_ = at_;
  ++line_;
}

bool CsvScanner::next_row(std::vector<CsvField>& row) {
  row.clear();
  unescaped_.clear();
  while (at_ < text_.size() && at_line_end()) end_line();
  if (at_ == text_.size()) return false;
  while (true) {
    row.push_back(field());
    if (at_ == text_.size()) return true;
    if (at_line_end()) break;
    ++at_;  // the separator
  }
  end_line();
  return true;
}

/// One field, up to its separator or line end.
CsvField CsvScanner::field() {
  CsvField field{{}, line_, static_cast<int64_t>(at_ - line_start_) + 1};
  const bool has_quotes = at_ < text_.size() && text_[at_] == '"';
  field.text = has_quotes ? quoted() : plain();
  return field;
}

std::string_view CsvScanner::plain() {
  const size_t begin = at_;
  for (; at_ < text_.size() && text_[at_] != separator_ && !at_line_end(); ++at_)
    if (text_[at_] == '"') fail("a quote within a field; quote the whole field and double it");
  return text_.substr(begin, at_ - begin);
}

std::string_view CsvScanner::quoted() {
  const int64_t line = line_;
  const size_t column = at_ - line_start_ + 1;
  const size_t begin = ++at_;
  bool has_doubled = false;
  while (true) {
    check(at_ < text_.size(), "{}:{}:{}: this quote is never closed", source_, line, column);
    if (text_[at_] == '"') {
      if (!text_.substr(at_ + 1).starts_with('"')) break;
      has_doubled = true;
      at_ += 2;
    } else if (at_line_end()) {
      end_line();
    } else {
      ++at_;
    }
  }
  std::string_view content = text_.substr(begin, at_ - begin);
  ++at_;
  if (at_ < text_.size() && text_[at_] != separator_ && !at_line_end())
    fail("expected a separator or line end after the closing quote");
  if (!has_doubled) return content;
  std::string& single = unescaped_.emplace_back();
  for (size_t i = 0; i < content.size(); ++i) {
    single += content[i];
    if (content[i] == '"') ++i;
  }
  return single;
}

}  // namespace ridge
