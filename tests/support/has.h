// Texts that a message has or lacks: a failure shows the whole message.
#pragma once

#include <gmock/gmock.h>

namespace ridge::test {

/// All of the texts.
template <typename... Texts>
auto has(Texts... texts) {
  return testing::AllOf(testing::HasSubstr(texts)...);
}

/// None of the texts.
template <typename... Texts>
auto lacks(Texts... texts) {
  return testing::AllOf(testing::Not(testing::HasSubstr(texts))...);
}

}  // namespace ridge::test
