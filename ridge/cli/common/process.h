// The set-up of a process before it reads or writes anything.
#pragma once

namespace ridge {

/// Opens /dev/null for those of stdin, stdout and stderr that are closed, so that no file of a run
/// takes their numbers. Writing to a closed pipe or beyond a limit of size becomes an error of that
/// write, where it would end the process: a run outlives the terminal that shows it.
void prepare_process();

}  // namespace ridge
