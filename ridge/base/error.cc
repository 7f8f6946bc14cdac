#include "ridge/base/error.h"

#include <algorithm>
#include <numeric>

namespace ridge {
namespace {

// Edit distance in which swapping two neighbours counts once (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name,
                                       const std::vector<std::string>& known,
                                       size_t limit) {
  // A name from a hostile file may be huge; nothing we know is near it then.
  constexpr size_t kLongestName = 200;
  std::vector<std::pair<size_t, std::string>> found;
  if (name.size() <= kLongestName) {
    for (const std::string& candidate : known) {
      const size_t distance = edit_distance(name, candidate);
      if (distance <= std::max<size_t>(2, std::max(name.size(), candidate.size()) / 3))
        found.emplace_back(distance, candidate);
    }
  }
  std::sort(found.begin(), found.end());
  if (found.size() > limit) found.resize(limit);
  std::vector<std::string> names;
  for (auto& [distance, candidate] : found) names.push_back(std::move(candidate));
  return names;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  std::string text;
  for (const std::string& candidate : nearest_names(name, known))
    text += fmt::format("{}'{}'", text.empty() ? "did you mean " : " or ", candidate);
  return text.empty() ? text : text + "?";
}

}  // namespace ridge
