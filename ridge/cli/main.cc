#include "ridge/ridge.h"

int main(int argc, char** argv) { return ridge::run_program(argc, argv); }
