#include "ridge/infer/trained_data.h"

#include <string_view>

#include "ridge/base/error.h"

namespace ridge {
namespace {

std::string_view properties_of(data::DataKind kind) {
  switch (kind) {
    case data::DataKind::kTable:
      return "columns, classes and normalization";
    case data::DataKind::kIdx:
    case data::DataKind::kImages:
      return "size, classes and normalization";
    case data::DataKind::kText:
      return "vocabulary";
    case data::DataKind::kRandom:
      return "shape and classes";
  }
  return {};
}

}  // namespace

std::optional<data::DataDescription> trained_data(const std::map<std::string, std::string>& texts,
                                                  const std::string& path,
                                                  const std::string& fix) {
  const auto text = texts.find(data::kDescriptionKey);
  if (text == texts.end()) return std::nullopt;
  const std::string source = fmt::format("'{}': {}", path, data::kDescriptionKey);
  try {
    return data::parse_description(text->second, source);
  } catch (const UserError& error) {
    throw UserError(error.message(), error.fix().empty() ? fix : error.fix());
  }
}

std::optional<data::DataDescription> trained_data(const OpenCheckpoint& checkpoint) {
  const std::string path = checkpoint.path().string();
  return trained_data(checkpoint.info().texts,
                      path,
                      fmt::format("give its weights alone, '{}/state.safetensors'", path));
}

std::string unchecked_note(const std::string& path, data::DataKind kind) {
  return fmt::format(
      "'{}' does not say what data it was trained on: whether {} of these data are the same cannot "
      "be checked",
      path,
      properties_of(kind));
}

}  // namespace ridge
