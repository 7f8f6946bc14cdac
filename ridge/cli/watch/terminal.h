// A terminal that shows one screen after another, and is as it was before when all is over.
#pragma once

#include <signal.h>
#include <termios.h>

#include <string>
#include <vector>

#include "ridge/cli/watch/screen.h"

namespace ridge {

/// Whether `descriptor` is a terminal that can show a screen, and this process is in front of it.
bool can_show_screen(int descriptor);

class WatchTerminal {
 public:
  /// Draws on `descriptor`, on the alternate screen; closes it at the end where it `owns` it. With
  /// `takes_keys` keys come from stdin where that is a terminal, one at a time and without echo.
  WatchTerminal(int descriptor, bool owns, bool takes_keys);
  WatchTerminal(const WatchTerminal&) = delete;
  WatchTerminal& operator=(const WatchTerminal&) = delete;
  ~WatchTerminal();

  bool takes_keys() const { return takes_keys_; }
  /// By its size now, and by NO_COLOR, TERM and the locale.
  ScreenStyle style() const;
  /// Nothing while this process is not in front of the terminal. False when the terminal is gone.
  bool draw(const std::vector<std::string>& lines);
  /// A key, or 0 where none comes within that time or a signal comes first.
  char wait_for_key(int milliseconds);
  /// Gives the terminal back; the next draw() takes it again.
  void leave();

 private:
  void enter();
  bool put(std::string_view text) const;

  int descriptor_;
  bool owns_, takes_keys_;
  bool is_shown_ = false, has_termios_ = false;
  termios before_{};
};

/// While it lives, signals that concern a screen are kept as flags: SIGWINCH and SIGTSTP, and with
/// `ends` also SIGINT, SIGTERM, SIGHUP and SIGQUIT. Not for more than one object at a time.
class WatchSignals {
 public:
  explicit WatchSignals(bool ends);
  WatchSignals(const WatchSignals&) = delete;
  WatchSignals& operator=(const WatchSignals&) = delete;
  ~WatchSignals();

  /// Whether it has come since the last call.
  static bool was_resized();
  static bool was_stopped();
  /// The signal that shall end this process; 0: none.
  static int end();

 private:
  struct Saved {
    int signal;
    struct sigaction action;
  };
  std::vector<Saved> saved_;
};

}  // namespace ridge
