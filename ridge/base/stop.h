// The wish to end a run early: set by a signal handler, polled by the trainer between steps.
#pragma once

namespace ridge {

/// Whether a run is asked to save and end. One relaxed load.
bool stop_requested();

/// The signal that asked, or 0.
int stop_signal();

/// Asks. Safe in a signal handler. The first request stands until clear_stop().
void request_stop(int signal);

void clear_stop();

}  // namespace ridge
