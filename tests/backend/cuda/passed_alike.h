// Parameters of NVIDIA's functions, ours against theirs.
#pragma once

#include <type_traits>

namespace ridge::test {

/// Handles and enums have types of our own: what counts is how a parameter is passed.
template <typename Ours, typename Theirs>
constexpr bool is_passed_alike() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>)
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  else
    return sizeof(Ours) == sizeof(Theirs) &&
           std::is_integral_v<Ours> == std::is_integral_v<Theirs> &&
           std::is_enum_v<Ours> == std::is_enum_v<Theirs>;
}

}  // namespace ridge::test
