#include "ridge/tune/pytorch/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

constexpr std::array kMallocSettings = {kNoMappings, kNoTrimming, kHugePages};
constexpr std::array kCudaSettings = {kGrowingSegments};
constexpr auto kAllocatorFiles = [] {
  std::array<std::string_view, std::size(kAllocatorLibraries)> files;
  for (size_t i = 0; i < files.size(); ++i) files[i] = kAllocatorLibraries[i].file;
  return files;
}();

constexpr TrustedVariable kVariables[] = {
    {.name = kMallocVariable, .settings = kMallocSettings, .is_list = true},
    {.name = kPreloadVariable, .settings = kAllocatorFiles, .folders = kLibraryFolders},
    {.name = kCudaAllocatorVariable, .settings = kCudaSettings},
};

bool is_setting_of(const TrustedVariable& variable, std::string_view text) {
  if (!variable.folders.empty()) {
    // The whole text before the last slash is compared, so neither ".." nor a list can get in.
    const size_t slash = text.rfind('/');
    if (slash == std::string_view::npos ||
        std::ranges::count(variable.folders, text.substr(0, slash)) == 0)
      return false;
    text.remove_prefix(slash + 1);
  }
  return std::ranges::count(variable.settings, text) > 0;
}

bool is_allowed(const TrustedVariable& variable, std::string_view value) {
  if (!variable.is_list) return is_setting_of(variable, value);
  std::vector<std::string_view> seen;
  for (;;) {
    const std::string_view setting = value.substr(0, value.find(':'));
    if (!is_setting_of(variable, setting) || std::ranges::count(seen, setting) > 0) return false;
    seen.push_back(setting);
    if (setting.size() == value.size()) return true;
    value.remove_prefix(setting.size() + 1);
  }
}

std::string joined(std::span<const std::string_view> words, std::string_view last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? last : ", ", words[i]);
  return text;
}

std::string expectation(const TrustedVariable& variable) {
  const std::string settings = joined(variable.settings, " or ");
  if (variable.is_list) return settings + ", or several of them with ':' between them";
  if (variable.folders.empty()) return settings;
  return fmt::format("{} in {}", settings, joined(variable.folders, " or "));
}

}  // namespace

std::span<const TrustedVariable> trusted_variables() { return kVariables; }

void check_trusted(const std::string& name, const std::string& value, const std::string& where) {
  const auto* found = std::ranges::find(kVariables, name, &TrustedVariable::name);
  const bool is_known = found != std::end(kVariables);
  if (is_known && is_allowed(*found, value)) return;
  std::vector<std::string_view> names;
  for (const TrustedVariable& variable : kVariables) names.push_back(variable.name);
  throw UserError(
      fmt::format(
          "{}: {} is not set from a recipe as it stands, for a variable can make the program run "
          "any code; got {}, expected {}",
          where,
          name,
          is_known ? "'" + valid_utf8(value) + "'" : name,
          is_known ? expectation(*found) : joined(names, " or ")),
      "if you trust who wrote the recipe, give --trust");
}

}  // namespace ridge
