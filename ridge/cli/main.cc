#include "ridge/cli/command.h"
#include "ridge/cli/common/process.h"

int main(int argc, char** argv) {
  ridge::prepare_process();
  return ridge::run_command(argc, argv);
}
