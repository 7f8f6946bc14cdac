#include "ridge/cli/watch/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace ridge {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?25h\x1b[?1049l";

bool is_in_front(int descriptor) { return ::tcgetpgrp(descriptor) == ::getpgrp(); }

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// A locale that names another encoding says so; where none is named at all, as in containers,
// terminals take UTF-8. The console of Linux has no glyphs for the small charts.
bool takes_unicode() {
  if (variable("TERM") == "linux") return false;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view locale = variable(name);
    if (locale.empty()) continue;
    return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return true;
}

volatile std::sig_atomic_t resized = 0, stopped = 0, ended = 0;

void handle(int signal) {
  if (signal == SIGWINCH)
    resized = 1;
  else if (signal == SIGTSTP)
    stopped = 1;
  else
    ended = signal;
}

bool taken(volatile std::sig_atomic_t& flag) {
  const bool was = flag != 0;
  flag = 0;
  return was;
}

}  // namespace

bool can_show_screen(int descriptor) {
  const std::string_view terminal = variable("TERM");
  return ::isatty(descriptor) == 1 && !terminal.empty() && terminal != "dumb" &&
         is_in_front(descriptor);
}

WatchTerminal::WatchTerminal(int descriptor, bool owns, bool takes_keys)
    : descriptor_(descriptor),
      owns_(owns),
      takes_keys_(takes_keys && ::isatty(STDIN_FILENO) == 1 && is_in_front(STDIN_FILENO)) {
  enter();
}

WatchTerminal::~WatchTerminal() {
  leave();
  if (owns_) ::close(descriptor_);
}

ScreenStyle WatchTerminal::style() const {
  ScreenStyle style;
  winsize size{};
  if (::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
    style.columns = size.ws_col, style.rows = size.ws_row;
  style.color = variable("NO_COLOR").empty();
  style.unicode = takes_unicode();
  return style;
}

void WatchTerminal::enter() {
  if (is_shown_ || !is_in_front(descriptor_)) return;
  if (takes_keys_ && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
    has_termios_ = true;
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 0;
    keys.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  is_shown_ = true;
  put(kEnter);
}

void WatchTerminal::leave() {
  if (!is_shown_) return;
  is_shown_ = false;
  put(kLeave);
  if (has_termios_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  has_termios_ = false;
}

bool WatchTerminal::draw(const std::vector<std::string>& lines) {
  if (!is_in_front(descriptor_)) return true;
  enter();
  // All in one piece, and what was there is overwritten rather than erased: it does not flicker.
  std::string frame = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i)
    frame += lines[i] + (i + 1 < lines.size() ? "\x1b[K\r\n" : "\x1b[K");
  frame += "\x1b[J";
  return put(frame);
}

bool WatchTerminal::put(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EAGAIN;  // another program made it so; the next one arrives
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

char WatchTerminal::wait_for_key(int milliseconds) {
  pollfd keys{takes_keys_ && is_shown_ ? STDIN_FILENO : -1, POLLIN, 0};
  if (::poll(&keys, 1, milliseconds) <= 0) return 0;
  char key = 0;
  if ((keys.revents & POLLIN) != 0 && ::read(STDIN_FILENO, &key, 1) == 1) return key;
  takes_keys_ = false;  // it hung up, and would be ready for ever
  return 0;
}

WatchSignals::WatchSignals(bool ends) {
  resized = 0;
  stopped = 0;
  ended = 0;
  std::vector<int> signals = {SIGWINCH, SIGTSTP};
  if (ends) signals.insert(signals.end(), {SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  for (int signal : signals) {
    Saved saved{.signal = signal, .action = {}};
    ::sigaction(signal, nullptr, &saved.action);
    if (saved.action.sa_handler == SIG_IGN) continue;  // as nohup wants it
    struct sigaction action{};
    action.sa_handler = handle;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
    saved_.push_back(saved);
  }
}

WatchSignals::~WatchSignals() {
  for (const Saved& saved : saved_) ::sigaction(saved.signal, &saved.action, nullptr);
}

bool WatchSignals::was_resized() { return taken(resized); }
bool WatchSignals::was_stopped() { return taken(stopped); }
int WatchSignals::end() { return ended; }

}  // namespace ridge
