// A training run as it goes, for people: a bar on a terminal, lines elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "ridge/run/observer.h"

namespace ridge {

/// Takes away what stands on the terminal's line.
inline constexpr std::string_view kClearLine = "\r\x1b[K";

struct ProgressStyle {
  bool bar = false;              ///< Redraw one line; for terminals only.
  int columns = 0;               ///< Width of the terminal; 0: ask it.
  int64_t (*clock)() = nullptr;  ///< Nanoseconds; null: now_ns.
};

/// A bar when `out` is a terminal that can redraw a line, and lines otherwise.
ProgressStyle style_for(std::FILE* out);

/// A bar is redrawn ten times a second at most. Lines come after 5 s, and then ever more seldom: at
/// most one a tenth of the time gone by. on_step allocates nothing.
class ProgressDisplay final : public TrainObserver {
 public:
  explicit ProgressDisplay(std::FILE* out);
  ProgressDisplay(std::FILE* out, ProgressStyle style);
  ~ProgressDisplay() override { clear_bar(); }

  void on_start(const StartReport& report) override;
  void on_step(const StepReport& report) override;
  void on_eval(const EvalReport& report) override;
  void on_checkpoint(std::string_view path, int64_t step) override;
  void on_message(std::string_view text) override;

  /// Takes the bar away, so that other text can follow.
  void clear_bar();

 private:
  void draw_bar(const StepReport& report, double seconds_left);
  void print_step(const StepReport& report, double seconds_left);
  void print_line(std::string_view text);
  void put(std::string_view text);

  std::FILE* out_;
  ProgressStyle style_;
  int64_t first_step_ = 0;
  int64_t start_ns_ = 0, shown_ns_ = 0;
  bool bar_shown_ = false;
};

}  // namespace ridge
