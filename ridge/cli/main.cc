#include "ridge/cli/command.h"
#include "ridge/cli/process.h"

int main(int argc, char** argv) {
  ridge::prepare_process();
  return ridge::run_command(argc, argv);
}
