#include "ridge/train/process_memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

namespace ridge {

namespace {

// A field of `path`, such as "RssAnon:", in bytes; 0 where there is none.
int64_t kibibyte_field(const char* path, std::string_view field) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char buffer[8192];
  size_t size = 0;
  for (ssize_t got; size < sizeof buffer; size += static_cast<size_t>(got)) {
    got = read(file, buffer + size, sizeof buffer - size);
    if (got <= 0) break;
  }
  close(file);
  const std::string_view text(buffer, size);
  size_t at = text.find(field);
  if (at == std::string_view::npos) return 0;
  at = text.find_first_of("0123456789", at + field.size());
  if (at == std::string_view::npos) return 0;
  int64_t kibibytes = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), kibibytes);
  return kibibytes * 1024;
}

}  // namespace

int64_t resident_anonymous_bytes() { return kibibyte_field("/proc/self/status", "RssAnon:"); }
int64_t resident_bytes() { return kibibyte_field("/proc/self/status", "VmRSS:"); }
int64_t peak_resident_bytes() { return kibibyte_field("/proc/self/status", "VmHWM:"); }
int64_t data_bytes() { return kibibyte_field("/proc/self/status", "VmData:"); }
int64_t available_bytes() { return kibibyte_field("/proc/meminfo", "MemAvailable:"); }

bool reset_peak_resident_bytes() {
  const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool is_reset = write(file, "5", 1) == 1;
  close(file);
  return is_reset;
}

void release_free_memory() { malloc_trim(0); }

}  // namespace ridge
