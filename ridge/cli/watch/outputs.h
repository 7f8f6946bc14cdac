// Outputs of `ridge watch`: a screen, lines, JSON, Prometheus.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ridge/attach/watch/prometheus_server.h"
#include "ridge/attach/watch/watch_state.h"
#include "ridge/cli/watch/terminal.h"
#include "ridge/io/file.h"

namespace ridge {

struct WatchOptions {
  pid_t pid = 0;  ///< 0: a command is started instead.
  std::vector<std::string> command{};
  double interval = -1;  ///< Seconds; below 0: not given.
  double price_per_hour = -1;
  bool json = false, quiet = false;
  std::string output{};  ///< Takes the JSON; empty: stdout, or stderr with a command.
  int prometheus = -1;   ///< Port; below 0: none.
  std::string listen = "127.0.0.1";
};

class WatchOutputs {
 public:
  /// Opens files and ports, and decides what is shown where. UserError where that cannot be.
  explicit WatchOutputs(const WatchOptions& options);

  /// Takes the terminal, and starts to serve: not before the program has been started, which must
  /// inherit neither.
  void start();
  /// One more state. False when nobody can see it any more. UserError where JSON cannot be written.
  bool show(const attach::WatchState& state);
  /// The screen again, at its size now.
  void redraw(const attach::WatchState& state);
  /// The last state: the screen goes away, and one line says how it was.
  void finish(const attach::WatchState& state);

  /// A key of the user's, or 0; waits for that long where there is none.
  char wait_for_key(int milliseconds);
  /// Stops this process as the terminal's stop key does, until it is continued.
  void stop();

 private:
  void open_terminal();
  void put_json(const attach::WatchState& state);
  void put_line(const attach::WatchState& state);
  void say(std::string_view text) const;

  const WatchOptions& options_;
  std::unique_ptr<attach::PrometheusServer> server_;
  std::unique_ptr<FileWriter> file_;
  std::unique_ptr<WatchTerminal> terminal_;
  bool has_lines_ = false;
  int64_t lined_ns_ = 0;
  std::vector<std::string> missing_said_{};
};

/// `ridge watch` itself; its exit code.
int run_watch(const WatchOptions& options);

}  // namespace ridge
