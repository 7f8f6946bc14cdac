// The verbs of the command line, each in a file of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
void add_predict(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);

/// The words behind `--`, for a verb that takes a command of the user's; empty: no `--` was given.
using ForeignCommand = std::optional<std::vector<std::string>>;
void add_optimize(CLI::App& app, int& exit_code, const ForeignCommand& command);
void add_ledger(CLI::App& app, int& exit_code, const ForeignCommand& command);
void add_doctor(CLI::App& app, int& exit_code, const ForeignCommand& command);
void add_recipe(CLI::App& app, int& exit_code, const ForeignCommand& command);
void add_run(CLI::App& app, int& exit_code, const ForeignCommand& command);
void add_capture(CLI::App& app, int& exit_code, const ForeignCommand& command);
void add_watch(CLI::App& app, int& exit_code, const ForeignCommand& command);

/// The verb that no parser sees, for its words are a program's: its exit code, or empty where it is
/// another verb. UserError where it is not ridge that started it.
std::optional<int> run_supervise(const std::vector<char*>& words);

}  // namespace ridge
