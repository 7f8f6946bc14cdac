// `ridge export MODEL`: a trained model in the files of other programs.
#pragma once

namespace CLI {
class App;
}

namespace ridge {

/// Adds the verb, as the functions of cli/verbs.h do.
void add_export(CLI::App& app, int& exit_code);

}  // namespace ridge
