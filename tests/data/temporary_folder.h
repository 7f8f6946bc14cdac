// A folder for one test, removed at its end.
#pragma once

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "tests/support/temp_folder.h"

namespace ridge::test {

/// A TempFolder whose paths are text, with files written in one call.
class TemporaryFolder : public TempFolder {
 public:
  std::string path(const std::string& name = "") const {
    return (TempFolder::path() / name).string();
  }

  /// Writes a file, and the folders that its name goes through.
  std::string write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  std::string write(const std::string& name, std::span<const std::byte> content) const {
    return write(name,
                 std::string_view(reinterpret_cast<const char*>(content.data()), content.size()));
  }
};

}  // namespace ridge::test
