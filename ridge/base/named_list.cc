#include "ridge/base/named_list.h"

#include <fmt/core.h>

#include "ridge/base/utf8.h"

namespace ridge {

std::string named_list(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const size_t shown = names.size() <= kShown + 1 ? names.size() : kShown;
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += fmt::format("'{}'", shown_text(names[i]));
  }
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

}  // namespace ridge
