// Lists and reads picture files.
#include "ridge/data/image_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "ridge/base/descriptor.h"
#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge::data {
namespace {

namespace fs = std::filesystem;

bool is_picture_name(const fs::path& path) {
  std::string end = path.extension().string();
  for (char& c : end) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

fs::directory_iterator open_folder(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  check(!error, "cannot read the folder '{}': {}", folder.string(), error.message());
  return entries;
}

std::vector<std::string> folders_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : open_folder(folder))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  check(!names.empty(), "'{}' has no subfolders: pictures need one a class", folder);
  return names;
}

// Adds the pictures in a folder and in those in it. Symbolic links to folders are followed, as
// those to the folders of classes are, but not from within what they lead to: `above` has the
// folders that it is in.
void add_pictures(const fs::path& folder,
                  std::set<fs::path>& above,
                  std::vector<std::string>& found) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  check(!error, "cannot read the folder '{}': {}", folder.string(), error.message());
  if (!above.insert(real).second) return;
  for (const fs::directory_entry& entry : open_folder(folder)) {
    if (entry.is_directory(error))
      add_pictures(entry.path(), above, found);
    else if (is_picture_name(entry.path()) && entry.is_regular_file(error))
      found.push_back(entry.path().string());
  }
  above.erase(real);
}

}  // namespace

std::vector<std::string> class_folders(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : folders_of(folder)) names.push_back(valid_utf8(name));
  return names;
}

std::vector<ImageFile> list_images(const std::string& folder,
                                   const std::vector<std::string>& classes) {
  std::vector<ImageFile> files;
  for (const std::string& name : folders_of(folder)) {
    const std::string text = valid_utf8(name);
    const auto place = std::find(classes.begin(), classes.end(), text);
    if (place == classes.end())
      throw UserError(
          fmt::format("'{}' holds class '{}', which the training data has not", folder, text),
          "take its subfolder out, or train on all classes");
    const size_t before = files.size();
    for (const fs::directory_entry& entry : open_folder(fs::path(folder) / name)) {
      std::error_code error;
      if (!is_picture_name(entry.path()) || !entry.is_regular_file(error)) continue;
      const auto bytes = static_cast<int64_t>(entry.file_size(error));
      files.push_back({.path = entry.path().string(),
                       .label = place - classes.begin(),
                       .bytes = error ? 0 : bytes});
    }
    check(files.size() > before,
          "class folder '{}' is empty: no .jpg, .jpeg or .png file in it",
          (fs::path(folder) / name).string());
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before),
              files.end(),
              [](const ImageFile& a, const ImageFile& b) { return a.path < b.path; });
  }
  return files;
}

std::vector<std::string> find_pictures(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  check(fs::exists(status), "cannot open '{}': {}", path, error.message());
  if (!fs::is_directory(status)) {
    if (!is_picture_name(path))
      throw UserError(fmt::format("'{}' is no picture by its name", path),
                      "name a .jpg, .jpeg or .png file, or a folder of them");
    return {path};
  }
  std::vector<std::string> found;
  std::set<fs::path> above;
  add_pictures(path, above, found);
  check(!found.empty(), "'{}' has no .jpg, .jpeg or .png file in it", path);
  std::sort(found.begin(), found.end());
  return found;
}

std::span<const std::byte> read_whole(const std::string& path, std::span<std::byte> buffer) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check(file.get() >= 0, "cannot open '{}': {}", path, std::strerror(errno));
  size_t filled = 0;
  while (true) {
    const ssize_t count = ::read(file.get(), buffer.data() + filled, buffer.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    check(count >= 0, "cannot read '{}': {}", path, std::strerror(errno));
    if (count == 0) break;
    filled += static_cast<size_t>(count);
    // One byte of the buffer is left unless the file has grown since it was listed.
    check(filled < buffer.size(), "'{}' has grown while it was in use", path);
  }
  return buffer.first(filled);
}

}  // namespace ridge::data
