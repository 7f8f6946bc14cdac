// The techniques that may cure what a rule of the doctor finds in a program in PyTorch.
#pragma once

#include <span>
#include <string_view>

namespace ridge {

/// Returns the names of trial_order() that may cure a finding of the rule ("R01") with this advice,
/// the likeliest first. The list is empty where nothing that can be changed from outside cures it.
std::span<const std::string_view> cures_of(std::string_view rule, std::string_view advice);

}  // namespace ridge
