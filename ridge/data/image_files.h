// The files of a folder of pictures, and their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ridge::data {

struct ImageFile {
  std::string path;
  int64_t label = 0;
  int64_t bytes = 0;
};

/// Names of the subfolders of `folder` as UTF-8, sorted; UserError when there are none.
std::vector<std::string> class_folders(const std::string& folder);

/// The pictures of `folder`/CLASS for each subfolder, sorted by class and name; labels are places
/// in `classes`. UserError for a subfolder that is no class, or that holds no picture.
std::vector<ImageFile> list_images(const std::string& folder,
                                   const std::vector<std::string>& classes);

/// A picture file, or those of a folder and all folders in it, in the order of their paths.
/// UserError where there is none.
std::vector<std::string> find_pictures(const std::string& path);

/// Reads a file whole into the front of `buffer` and returns its bytes; allocates nothing.
/// UserError when it cannot be read, or is larger than the buffer.
std::span<const std::byte> read_whole(const std::string& path, std::span<std::byte> buffer);

}  // namespace ridge::data
