#include "ridge/tune/pytorch/recipe_patch.h"

#include <filesystem>

#include "ridge/attach/folders/private_folder.h"
#include "ridge/attach/process/program.h"
#include "ridge/attach/shim.h"
#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/json_writer.h"
#include "ridge/base/shell_word.h"
#include "ridge/base/utf8.h"
#include "ridge/io/file.h"
#include "ridge/io/json.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostResult = size_t{64} << 20, kMostSaid = size_t{1} << 20;

/// Words of a command as shell_word() wrote them.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool is_quoted = false, is_open = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ' && !is_quoted) {
      is_open = false;
      continue;
    }
    if (!is_open) words.emplace_back();
    is_open = true;
    if (c == '\'')
      is_quoted = !is_quoted;
    else if (c == '\\' && !is_quoted && i + 1 < text.size())
      words.back() += text[++i];
    else
      words.back() += c;
  }
  return words;
}

std::string interpreter_of(const std::vector<std::string>& command) {
  const bool has_one =
      !command.empty() && fs::path(command[0]).filename().string().starts_with("python");
  return has_one ? command[0] : "python3";
}

std::string request_json(const ForeignRecipe& recipe,
                         const std::vector<std::string>& words,
                         const std::string& root) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("root", root).key("words").begin_array();
  for (const std::string& word : words) json.value(word);
  json.end_array().key("recipe").begin_object();
  for (const auto& [key, value] : recipe.changes()) {
    const KnobType type = find_knob(key)->type;
    if (type == KnobType::kFlag)
      json.field(key, value == "true");
    else if (type == KnobType::kNumber)
      json.field(key, std::stoll(value));
    else
      json.field(key, value);
  }
  json.end_object().key("sites").begin_object();
  for (const auto& [key, site] : recipe.sites) json.field(key, site);
  json.end_object().end_object().finish();
  return text;
}

void run_script(const std::string& python,
                const std::string& folder,
                const std::string& supervisor) {
  const auto write = [&](std::string_view name, std::string_view text) {
    FileWriter file(fmt::format("{}/{}", folder, name));
    file.write(as_bytes(text));
  };
  for (const auto& [name, text] : patch_files()) write(name, text);
  write("knobs.json", attach::shim_file("knobs.json"));
  const std::string output = folder + "/output";
  attach::Program program({.command = {python,
                                       "-I",
                                       folder + "/recipe_patch.py",
                                       folder + "/request.json",
                                       folder + "/result.json"},
                           .folders = {folder},
                           .output = output,
                           .supervisor = supervisor});
  if (program.wait(-1)->exit_code == 0) return;
  std::string said = read_file(output, kMostSaid);
  while (said.ends_with('\n')) said.pop_back();
  throw UserError(fmt::format("'{}' cannot read the program: {}",
                              python,
                              shortened(said.substr(said.rfind('\n') + 1), 200)),
                  "put the program's command, with a Python of 3.8 or later, behind '--'");
}

}  // namespace

RecipePatch make_recipe_patch(const ForeignRecipe& recipe, const PatchRequest& request) {
  check(fs::is_directory(request.root), "'{}' is no folder", valid_utf8(request.root));
  const std::vector<std::string> words =
      request.command.empty() ? words_of(recipe.proven.command) : request.command;
  const attach::PrivateFolder folder("patch");
  write_file_atomically(folder.path() + "/request.json",
                        request_json(recipe, words, fs::absolute(request.root).string()));
  run_script(interpreter_of(request.command), folder.path(), request.supervisor);
  const std::string path = folder.path() + "/result.json";
  const JsonValue result = parse_json(read_file(path, kMostResult), path);
  RecipePatch patch;
  patch.diff = result.at("diff", path).as_string(path);
  for (const JsonValue& note : result.at("notes", path).as_array(path))
    patch.notes.push_back(note.as_string(path));
  for (const auto& [name, value] : recipe.environment())
    patch.notes.push_back(
        fmt::format("{0}: not as a patch: it is set where the program is started: {0}={1} COMMAND",
                    name,
                    shell_word(value)));
  return patch;
}

}  // namespace ridge
