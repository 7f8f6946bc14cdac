// Asks a running PyTorch program for a trace, over libkineto's own on-demand protocol.
//
// A program that was started with KINETO_USE_DAEMON=1 sends datagrams to the abstract Unix socket
// whose name is "dynolog" and a NUL: once at its start, which may be long before ours, and then a
// question every few seconds, whether a trace is wanted. The text of a configuration is the answer.
// Only programs in our own network namespace can reach us.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ridge/attach/folders/trace_folder.h"

namespace ridge::attach {

struct OnDemandRequest {
  pid_t pid = 0;
  int64_t duration_ms = 5000;
  /// Above 0: so many steps of an optimizer, which PyTorch counts for daemons; else by time.
  int64_t iterations = 0;
  double timeout_seconds = 60;     ///< For its call; after the recording for each sign of life.
  std::string socket = "dynolog";  ///< Another one in tests.
};

struct OnDemandTrace {
  TraceFolder folder;     ///< Removed with this object, the trace in it.
  std::string path{};     ///< Path of the trace, within it.
  std::string program{};  ///< "process 123 (train.py)"
};

/// Serves the socket until the trace is there and whole. `should_stop` is asked ten times a second:
/// once it says yes nothing is returned, and nothing left; a recording under way ends unseen. `say`
/// takes lines for the user. UserError: KinetoProgram's reasons, another daemon owns the socket,
/// the program did not call within the time, ended, or wrote nothing.
std::optional<OnDemandTrace> trace_on_demand(const OnDemandRequest& request,
                                             const std::function<bool()>& should_stop,
                                             const std::function<void(std::string_view)>& say);

}  // namespace ridge::attach
