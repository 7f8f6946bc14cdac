// A copy of a working folder, for a program that is not to write into the folder itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge::attach {

inline constexpr int64_t kMostCopiedBytes = int64_t{2} << 30;

/// Makes `to` a copy of `from`, which lie not in each other: modes, times, hard links and FIFOs
/// too, sockets and devices not. Files share their blocks where the file system can do that. Links
/// that lead into `from` lead into `to`, others where they led. What cannot be read is left out:
/// the program could not read it either. UserError, with `to` left unfinished, where it would take
/// more than `most_bytes` or there is no room.
void copy_folder(const std::string& from, const std::string& to, int64_t most_bytes);

/// `text` with each path of `from`, and beneath it, as one of `to`.
std::string with_moved_paths(std::string_view text, std::string_view from, std::string_view to);

}  // namespace ridge::attach
