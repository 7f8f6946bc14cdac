// The verbs of the command line, each in a file of its own.
#pragma once

namespace CLI {
class App;
}

namespace ridge {

/// Each adds its verb, with options, help, and a callback that runs it and sets the exit code.
void add_inspect(CLI::App& app, int& exit_code);
void add_calibrate(CLI::App& app, int& exit_code);
void add_train(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_ledger(CLI::App& app, int& exit_code);
void add_optimize(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);

}  // namespace ridge
