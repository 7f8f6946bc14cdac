// The state of a watched program as lines of a terminal.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/attach/watch/watch_state.h"

namespace ridge {

struct ScreenStyle {
  int columns = 80, rows = 24;
  bool color = true;
  bool unicode = true;  ///< Blocks for the small charts; else plain characters.
  std::string help{};   ///< Says what keys do.
};

/// At most `rows` lines, each of at most `columns` - 1 cells: some terminals break the line at the
/// last one. What matters least goes first where there is no room.
std::vector<std::string> watch_screen(const attach::WatchState& state, const ScreenStyle& style);

/// The last of `values`, a character each, as many as there are cells: as heights from zero to
/// `whole`, or to the greatest of those shown where that is 0.
std::string sparkline(const std::deque<double>& values, size_t cells, double whole, bool unicode);

/// Cells that a text takes on a terminal: two for wide characters, none for those that combine.
/// The text has to be plain_line's.
size_t cells_of(std::string_view text);
/// The start of `text` in at most `cells`, with an ellipsis where there is more. What a terminal
/// may draw in another order or not at all becomes '?'.
std::string fitting(std::string_view text, size_t cells);

}  // namespace ridge
