#include "ridge/infer/input_sizes.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

// A list for people: "'T', 'S' and 'K'".
std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}'{}'",
                        i == 0                  ? ""
                        : i + 1 == names.size() ? " and "
                                                : ", ",
                        shown_text(names[i]));
  return text;
}

void check_given(const Dim& dim, int64_t size) {
  check(size >= 1, "dimension '{}' must be at least 1; got {}", shown_text(dim.name), size);
  check(dim.size == 0 || size <= dim.size,
        "dimension '{}' must be at most {}; got {}",
        shown_text(dim.name),
        dim.size,
        size);
}

}  // namespace

std::vector<std::string> sample_dims(const std::vector<DataSpec>& inputs) {
  std::set<std::string> elsewhere;
  for (const DataSpec& input : inputs)
    for (size_t axis = 1; axis < input.dims.size(); ++axis) elsewhere.insert(input.dims[axis].name);
  std::vector<std::string> names;
  for (const DataSpec& input : inputs) {
    if (input.dims.empty() || input.dims[0].name.empty()) continue;
    const std::string& name = input.dims[0].name;
    if (!elsewhere.contains(name) && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  return names;
}

InputSizes input_sizes(const std::vector<DataSpec>& inputs, const Binding& given, int64_t samples) {
  const std::vector<Dim> dims = named_dims(inputs);
  std::vector<std::string> names;
  for (const Dim& dim : dims) names.push_back(dim.name);
  for (const auto& [name, size] : given)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw UserError(fmt::format("the model has no dimension '{}'{}",
                                  shown_text(name),
                                  names.empty() ? "" : ", only " + quoted(names)),
                      did_you_mean(name, names));
  const std::vector<std::string> of_samples = sample_dims(inputs);
  InputSizes sizes;
  for (const Dim& dim : dims) {
    const bool is_of_samples =
        std::find(of_samples.begin(), of_samples.end(), dim.name) != of_samples.end();
    int64_t size = is_of_samples ? samples : dim.size;
    if (const auto found = given.find(dim.name); found != given.end()) size = found->second;
    if (size == 0 && !is_of_samples && !given.contains(dim.name)) {
      sizes.missing.push_back(dim.name);
      continue;
    }
    check_given(dim, size);
    sizes.binding[dim.name] = size;
  }
  return sizes;
}

void refuse_missing_sizes(const std::vector<std::string>& missing) {
  std::string fix = "give";
  for (const std::string& name : missing) fix += fmt::format(" --dim {}=SIZE", shown_text(name));
  throw UserError(
      fmt::format("{} {} no size", quoted(missing), missing.size() == 1 ? "has" : "have"), fix);
}

Binding parse_sizes(const std::vector<std::string>& texts) {
  Binding sizes;
  for (const std::string& text : texts) {
    const size_t equals = std::min(text.rfind('='), text.size());
    const char* const first = text.data() + std::min(equals + 1, text.size());
    const char* const end = text.data() + text.size();
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(first, end, size);
    if (equals == 0 || stop != end || error != std::errc())
      throw UserError(fmt::format("'{}' gives no dimension a size", shown_text(text)),
                      "write --dim NAME=SIZE, as --dim T=128");
    const std::string name = text.substr(0, equals);
    check(sizes.emplace(name, size).second, "--dim gives '{}' two sizes", shown_text(name));
  }
  return sizes;
}

}  // namespace ridge
