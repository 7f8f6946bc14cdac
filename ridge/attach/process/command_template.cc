#include "ridge/attach/process/command_template.h"

#include <algorithm>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/base/shell_word.h"

namespace ridge::attach {
namespace {

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// "out" or "steps" for what somebody may have meant by it; or nothing.
std::string_view meant_by(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.find("step") != lower.npos) return "steps";
  if (lower.find("out") != lower.npos) return "out";
  // Shorter ones are near to everything.
  if (lower.size() < 3) return {};
  const std::vector<std::string> near = nearest_names(lower, {"out", "steps"}, 1);
  if (near.empty()) return {};
  return near[0] == "out" ? "out" : "steps";
}

/// The name in the braces that `text` begins with; empty where there is none.
std::string_view name_in(std::string_view text) {
  if (!text.starts_with('{')) return {};
  size_t end = 1;
  while (end < text.size() && is_of_name(text[end])) ++end;
  return end > 1 && end < text.size() && text[end] == '}' ? text.substr(1, end - 1)
                                                          : std::string_view();
}

void refuse(std::string_view name) {
  throw UserError(fmt::format("the command has '{{{}}}', which stands for nothing", name),
                  fmt::format("write '{{{}}}', or '{{{{{}}}}}' where it is to be that very text",
                              meant_by(name),
                              name));
}

/// Gives each part of a word to `put`: a name of ours, or text.
template <typename F>
void split(std::string_view word, F&& put) {
  for (size_t at = 0; at < word.size();) {
    const std::string_view rest = word.substr(at), inner = rest.substr(1);
    const std::string_view doubled = name_in(inner), name = name_in(rest);
    if (rest[0] == '{' && !meant_by(doubled).empty() &&
        rest.substr(doubled.size() + 3).starts_with('}')) {
      put({}, rest.substr(1, doubled.size() + 2));
      at += doubled.size() + 4;
    } else if (!meant_by(name).empty() && (at == 0 || word[at - 1] != '$')) {
      if (name != meant_by(name)) refuse(name);
      put(name, {});
      at += name.size() + 2;
    } else {
      put({}, rest.substr(0, 1));
      ++at;
    }
  }
}

}  // namespace

CommandTemplate::CommandTemplate(std::vector<std::string> words) : words_(std::move(words)) {
  if (words_.empty() || words_[0].empty())
    throw UserError("there is no command to run", "give it after '--', as in '-- python train.py'");
  for (const std::string& word : words_)
    split(word, [&](std::string_view name, std::string_view) {
      has_out_ |= name == "out";
      has_steps_ |= name == "steps";
    });
}

std::vector<std::string> CommandTemplate::filled(const std::string& out, int64_t steps) const {
  std::vector<std::string> all;
  for (const std::string& word : words_) {
    std::string& put_in = all.emplace_back();
    split(word, [&](std::string_view name, std::string_view text) {
      if (name == "out")
        put_in += out;
      else if (name == "steps")
        put_in += std::to_string(steps);
      else
        put_in += text;
    });
  }
  return all;
}

std::string CommandTemplate::text() const {
  std::string text;
  for (const std::string& word : words_) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

Consent consent_to(const CommandTemplate& command, bool sandbox, bool rerun) {
  if (sandbox && rerun)
    throw UserError("--sandbox keeps what each run writes apart, --rerun does not",
                    "give one of them");
  if (sandbox) return Consent::kSandbox;
  if (command.has_out()) return Consent::kOut;
  if (rerun) return Consent::kRerun;
  throw UserError(
      fmt::format("'{}' would be run many times, and may write over its own files each time",
                  command.text()),
      "put {out} where the command names its output folder, or give --sandbox to run it in a "
      "private "
      "copy of the working folder, or --rerun to let it write where it always does");
}

}  // namespace ridge::attach
