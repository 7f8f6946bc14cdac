// The texts of `ridge watch`, without their places on a screen.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ridge/attach/watch/watch_state.h"

namespace ridge {

enum class Tone { kPlain, kStrong, kWarning, kDim };

struct WatchField {
  std::string text;
  Tone tone = Tone::kPlain;
};

/// The text about one subject: as many lines as its fields need.
struct WatchSection {
  std::string label;
  int rank = 0;  ///< The greatest is left out first where there is no room.
  std::vector<WatchField> fields{};
  const std::deque<double>* chart = nullptr;  ///< One of the state's histories.
  double whole = 0;                           ///< The chart's full height; 0: its greatest value.
};

/// From the top of a screen to its end. They refer to `state`. Foreign text in them is as it came.
std::vector<WatchSection> watch_sections(const attach::WatchState& state);

/// One line for logs: "1,234 steps, 8.3 steps/s, ...".
std::string watch_line(const attach::WatchState& state);

/// One line that stays on the terminal at the end.
std::string watch_summary(const attach::WatchState& state);

}  // namespace ridge
