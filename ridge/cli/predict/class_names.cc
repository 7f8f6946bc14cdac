#include "ridge/cli/predict/class_names.h"

#include <algorithm>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/infer/bind_inputs.h"
#include "ridge/io/file.h"

namespace ridge {
namespace {

constexpr size_t kLongestFile = size_t{1} << 24;

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

ClassScores read_class_names(const std::string& path, const std::vector<DataSpec>& outputs) {
  const std::string text = read_file(path, kLongestFile);
  if (valid_utf8(text) != text)
    throw UserError(fmt::format("--classes '{}' is no text in UTF-8", path),
                    "give a file with the name of a class in each line");
  ClassScores classes{.output = {}, .names = lines_of(text)};
  const auto scores = std::ranges::find_if(outputs, [&](const DataSpec& output) {
    return is_float(output.dtype) && output.dims.size() == 2 && output.dims[1].name.empty() &&
           output.dims[1].size == std::ssize(classes.names);
  });
  if (scores == outputs.end())
    throw UserError(fmt::format("--classes '{}' has {} lines, and the model gives {}",
                                path,
                                classes.names.size(),
                                listed(outputs)),
                    "give a line for each class");
  classes.output = scores->name;
  return classes;
}

std::vector<std::optional<int64_t>> likeliest(const Tensor& scores) {
  std::vector<std::optional<int64_t>> result;
  const int64_t classes = scores.type().shape.at(1);
  for (int64_t row = 0; row < scores.type().shape[0]; ++row) {
    int64_t best = 0;
    bool has_nan = false;
    for (int64_t c = 0; c < classes; ++c) {
      const double score = scores.at(row * classes + c);
      has_nan = has_nan || std::isnan(score);
      if (score > scores.at(row * classes + best)) best = c;
    }
    result.push_back(has_nan ? std::optional<int64_t>() : best);
  }
  return result;
}

std::string missing_classes_note(const std::vector<std::optional<int64_t>>& likeliest) {
  const auto first = std::ranges::find(likeliest, std::optional<int64_t>());
  if (first == likeliest.end()) return {};
  return fmt::format(
      "{} of {} rows have scores that are NaN, at first row {}: their argmax is null",
      std::ranges::count(likeliest, std::optional<int64_t>()),
      likeliest.size(),
      first - likeliest.begin());
}

}  // namespace ridge
