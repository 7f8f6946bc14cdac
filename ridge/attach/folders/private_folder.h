// Folders of ours for the time of one run: beneath TMPDIR, named after this process, removed with
// the object, and, where this process was killed, when the next one is made.
#pragma once

#include <string>
#include <string_view>

namespace ridge::attach {

/// TMPDIR, or /tmp, as an absolute path.
std::string folder_for_temporary_files();

/// Removes a folder with all it holds and through no link, also where a program took the right to
/// write from parts of it. What cannot be removed stays.
void remove_tree(const std::string& path);

class PrivateFolder {
 public:
  /// `kind` is one of those that private_folder.cc lists: what else is called "ridge-..." is
  /// somebody else's. UserError where no folder can be made.
  explicit PrivateFolder(std::string_view kind);
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;  ///< Held while this process lives, whatever number others know it by.
};

}  // namespace ridge::attach
