// Declarations of ours against those of NVIDIA's headers: one that differs does not compile.
#pragma once

#include <cstdint>
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

/// True when two functions are called alike; ours may be a Call<Parameters...>.
template <typename Ours, typename Theirs>
struct Alike : std::false_type {};
template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
  requires(sizeof...(Ours) == sizeof...(Theirs))
struct Alike<OurResult(Ours...), TheirResult(Theirs...)> {
  static constexpr bool value =
      sizeof(OurResult) == sizeof(TheirResult) && (is_passed_alike<Ours, Theirs>() && ...);
};
template <template <typename...> typename Call,
          typename... Ours,
          typename Result,
          typename... Theirs>
struct Alike<Call<Ours...>, Result(Theirs...)> : Alike<Result(Ours...), Result(Theirs...)> {};

}  // namespace ridge::test

#define RIDGE_CALL(ours, theirs) \
  static_assert(ridge::test::Alike<decltype(ours), decltype(theirs)>::value)
#define RIDGE_IS(ours, theirs) \
  static_assert(static_cast<int64_t>(ours) == static_cast<int64_t>(theirs))
