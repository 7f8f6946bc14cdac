#include "ridge/cli/command.h"

int main(int argc, char** argv) { return ridge::run_command(argc, argv); }
