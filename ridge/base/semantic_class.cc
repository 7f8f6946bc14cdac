#include "ridge/base/semantic_class.h"

#include <algorithm>
#include <array>

namespace ridge {
namespace {

constexpr std::array<std::string_view, 4> kClasses = {
    "bit_identical", "reassociation", "precision", "trajectory"};

}  // namespace

std::string_view name_of(SemanticClass semantic_class) {
  return kClasses[static_cast<size_t>(semantic_class)];
}

std::optional<SemanticClass> parse_semantic_class(std::string_view name) {
  const auto found = std::ranges::find(kClasses, name);
  if (found == kClasses.end()) return std::nullopt;
  return static_cast<SemanticClass>(found - kClasses.begin());
}

}  // namespace ridge
