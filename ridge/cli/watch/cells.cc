// How wide text is on a terminal, and charts one line high.
#include <algorithm>
#include <iterator>

#include "ridge/base/html/markup.h"
#include "ridge/base/utf8.h"
#include "ridge/cli/watch/screen.h"

namespace ridge {
namespace {

struct Range {
  char32_t first, last;
};

// Unicode's wide and full-width blocks, as far as names may hold them.
constexpr Range kWide[] = {{0x1100, 0x115f},
                           {0x231a, 0x231b},
                           {0x2329, 0x232a},
                           {0x23e9, 0x23f3},
                           {0x25fd, 0x25fe},
                           {0x2614, 0x27bf},
                           {0x2b1b, 0x2b55},
                           {0x2e80, 0xa4cf},
                           {0xa960, 0xa97c},
                           {0xac00, 0xd7a3},
                           {0xf900, 0xfaff},
                           {0xfe10, 0xfe19},
                           {0xfe30, 0xfe6f},
                           {0xff00, 0xff60},
                           {0xffe0, 0xffe6},
                           {0x16fe0, 0x18fff},
                           {0x1aff0, 0x1b2ff},
                           {0x1f000, 0x1faff},
                           {0x20000, 0x3fffd}};

// Marks that combine, joiners, and what turns the direction of writing: the width of a line with
// them is the terminal's secret, and a name could be made to look like another.
constexpr Range kStrange[] = {
    {0x00ad, 0x00ad},   {0x0300, 0x036f},   {0x0483, 0x0489},   {0x0590, 0x08ff},
    {0x0900, 0x10ff},   {0x1160, 0x11ff},   {0x135d, 0x135f},   {0x1700, 0x1aff},
    {0x1b00, 0x1cff},   {0x1dc0, 0x1dff},   {0x200b, 0x200f},   {0x2028, 0x202f},
    {0x205f, 0x206f},   {0x20d0, 0x20ff},   {0x2cef, 0x2cf1},   {0x2d7f, 0x2d7f},
    {0x2de0, 0x2dff},   {0x302a, 0x302f},   {0x3099, 0x309a},   {0xa66f, 0xa67d},
    {0xa69e, 0xa69f},   {0xa6f0, 0xa6f1},   {0xa800, 0xa95f},   {0xa980, 0xabff},
    {0xd7b0, 0xf8ff},   {0xfb1d, 0xfdff},   {0xfe00, 0xfe0f},   {0xfe20, 0xfe2f},
    {0xfe70, 0xfeff},   {0xfff0, 0xfffb},   {0x10000, 0x16fdf}, {0x16fe4, 0x16fe4},
    {0x19000, 0x1afef}, {0x1b300, 0x1efff}, {0x1fb00, 0x1ffff}, {0x3fffe, 0x10ffff}};

template <size_t kSize>
bool is_in(const Range (&ranges)[kSize], char32_t character) {
  return std::any_of(std::begin(ranges), std::end(ranges), [&](const Range& range) {
    return character >= range.first && character <= range.last;
  });
}

// The character that a well-formed text begins with, and its bytes.
char32_t first_of(std::string_view text, size_t& length) {
  length = std::max<size_t>(1, utf8_length(text));
  const auto byte = static_cast<unsigned char>(text[0]);
  char32_t character = length == 1 ? byte : byte & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i)
    character = character << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  return character;
}

}  // namespace

size_t cells_of(std::string_view text) {
  size_t cells = 0;
  for (size_t length = 0; !text.empty(); text.remove_prefix(length)) {
    const char32_t character = first_of(text, length);
    cells += is_in(kStrange, character) ? 0 : is_in(kWide, character) ? 2 : 1;
  }
  return cells;
}

std::string fitting(std::string_view text, size_t cells) {
  constexpr std::string_view kEllipsis = "\u2026";
  std::string safe;
  const std::string plain = plain_line(text);
  std::string_view rest = plain;
  for (size_t length = 0; !rest.empty(); rest.remove_prefix(length)) {
    const bool is_strange = is_in(kStrange, first_of(rest, length));
    safe += is_strange ? std::string_view("?") : rest.substr(0, length);
  }
  if (cells_of(safe) <= cells) return safe;
  if (cells == 0) return {};
  size_t kept = 0, used = 0;
  for (size_t length = 0;; kept += length) {
    const size_t width =
        is_in(kWide, first_of(std::string_view(safe).substr(kept), length)) ? 2 : 1;
    if (used + width > cells - 1) break;
    used += width;
  }
  return safe.substr(0, kept) + std::string(kEllipsis);
}

std::string sparkline(const std::deque<double>& values, size_t cells, double whole, bool unicode) {
  constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::string_view kPlain[] = {"_", ".", ",", "-", "=", "+", "*", "#"};
  const size_t count = std::min(cells, values.size());
  if (count == 0) return {};
  const auto first = values.end() - static_cast<std::ptrdiff_t>(count);
  const double most = whole > 0 ? whole : *std::max_element(first, values.end());
  std::string text;
  for (auto value = first; value != values.end(); ++value) {
    const double level = most > 0 && *value > 0 ? std::min(*value / most * 8, 7.0) : 0;
    text += (unicode ? kBlocks : kPlain)[static_cast<size_t>(level)];
  }
  return text;
}

}  // namespace ridge
