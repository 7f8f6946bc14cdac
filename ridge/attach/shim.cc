// The folder of the shim: made, handed to a program, and removed.
#include "ridge/attach/shim.h"

#include <cstdlib>
#include <filesystem>

#include "ridge/base/error.h"
#include "ridge/io/file.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

std::string number(double value) { return fmt::format("{}", value); }

}  // namespace

std::string_view shim_file(std::string_view name) {
  for (const auto& [file, text] : shim_files())
    if (file == name) return text;
  throw InternalError(fmt::format("the shim has no {}", name));
}

ShimFolder::ShimFolder(const ShimOptions& options) : options_(options) {
  const std::string parent = folder_for_temporary_files();
  check(parent.find(':') == std::string::npos,
        "cannot use '{}' for temporary files: a colon ends an entry of PYTHONPATH; set TMPDIR to "
        "another folder",
        parent);
  folder_.emplace("shim");
  for (const auto& [name, text] : shim_files()) {
    FileWriter file(path() + "/" + std::string(name));
    file.write(as_bytes(text));
  }
  for (const auto& [name, text] :
       {std::pair{"/recipe.json", &options.recipe}, {"/imports.json", &options.imports}}) {
    if (text->empty()) continue;
    FileWriter file(path() + name);
    file.write(as_bytes(*text));
  }
}

std::vector<std::pair<std::string, std::string>> ShimFolder::environment() const {
  std::string path = this->path();
  // An empty entry would be the program's working folder.
  if (const char* before = std::getenv("PYTHONPATH"); before != nullptr && *before != '\0')
    path += std::string(":") + before;
  std::vector<std::pair<std::string, std::string>> all = {
      {"PYTHONPATH", path},
      {"RIDGE_SHIM_STEPS", fmt::format("{}", options_.profiled_steps)},
      {"RIDGE_SHIM_WARM_STEPS", fmt::format("{}", options_.warm_steps)},
      {"RIDGE_SHIM_WARM_SECONDS", number(options_.warm_seconds)},
      {"RIDGE_SHIM_MOST_SECONDS", number(options_.most_seconds)},
  };
  if (!options_.keeps_spans) all.emplace_back("RIDGE_SHIM_NO_SPANS", "1");
  if (options_.probes) all.emplace_back("RIDGE_SHIM_PROBE", "1");
  if (options_.watches_batches) all.emplace_back("RIDGE_SHIM_BATCHES", "1");
  if (options_.watches_losses) all.emplace_back("RIDGE_SHIM_LOSSES", "1");
  if (!options_.imports.empty()) all.emplace_back("RIDGE_SHIM_PARENT", "1");
  if (options_.gate) all.emplace_back("RIDGE_SHIM_GATE", "1");
  if (options_.record_steps > 0) {
    all.emplace_back("RIDGE_SHIM_RECORD_STEPS", fmt::format("{}", options_.record_steps));
    all.emplace_back("RIDGE_SHIM_RESEED", fmt::format("{}", options_.reseed));
    if (options_.nudge > 0) all.emplace_back("RIDGE_SHIM_NUDGE", fmt::format("{}", options_.nudge));
    // The order of sets of words would be another in each run.
    if (std::getenv("PYTHONHASHSEED") == nullptr) all.emplace_back("PYTHONHASHSEED", "0");
  }
  // Some versions of libkineto say on stderr that they begin and end.
  if (std::getenv("KINETO_LOG_LEVEL") == nullptr) all.emplace_back("KINETO_LOG_LEVEL", "99");
  return all;
}

bool ShimFolder::was_loaded() const {
  std::error_code ignored;
  return fs::exists(path() + "/loaded", ignored);
}

}  // namespace ridge::attach
