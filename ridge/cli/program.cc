#include "ridge/cli/command.h"
#include "ridge/cli/common/process.h"
#include "ridge/ridge.h"

namespace ridge {

int run_program(int argc, char** argv) {
  prepare_process();
  return run_command(argc, argv);
}

}  // namespace ridge
