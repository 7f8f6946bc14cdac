// A picture of a page, and the names of its colours.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge {

/// The names of some colours, which stand below the picture as text of the page, so that they wrap.
struct PictureKey {
  struct Entry {
    std::string_view ink;
    std::string text;
  };
  std::string title;  ///< Empty where there is one key alone.
  std::vector<Entry> entries;
};

struct Picture {
  std::string svg{};  ///< Empty: there is nothing to draw.
  std::vector<PictureKey> keys{};
  bool empty() const { return svg.empty(); }
};

}  // namespace ridge
