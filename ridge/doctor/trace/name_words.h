// Words in the names of events, and results that depend on a name alone, computed once for each
// name.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// Whether `text` holds `part`; `part` in lower case, the case of `text` does not matter.
bool holds(std::string_view text, std::string_view part);
/// Whether it holds one of them.
bool holds_any(std::string_view text, std::span<const std::string_view> parts);

/// Caches the result of `tell` by name: a trace has many rows, and few names. `tell` is called only
/// for names that rows are asked of.
template <typename Tell>
class ByName {
 public:
  ByName(const Trace& trace, Tell tell)
      : trace_(trace), tell_(std::move(tell)), told_(trace.names.size()) {}

  auto operator()(size_t row) {
    auto& told = told_[trace_.name[row]];
    if (!told) told.emplace(tell_(trace_.name_text(row)));
    return *told;
  }

 private:
  const Trace& trace_;
  Tell tell_;
  std::vector<std::optional<std::invoke_result_t<Tell&, std::string_view>>> told_;
};

}  // namespace ridge::doctor
