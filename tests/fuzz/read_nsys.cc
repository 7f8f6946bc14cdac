// Bytes of an nsys export: read into a trace whose rows are sound, or refused clearly.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "ridge/base/error.h"
#include "ridge/doctor/read/read_trace.h"

namespace {

// A file that is never on a disk.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(::memfd_create("trace", MFD_CLOEXEC)) {
    for (size_t done = 0; done < size;) {
      const ssize_t count = ::write(descriptor_, data + done, size - done);
      if (count <= 0) std::abort();
      done += static_cast<size_t>(count);
    }
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void check_rows(const ridge::doctor::Trace& trace) {
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.name[row] >= trace.names.size() || trace.lane[row] >= trace.lanes.size())
      std::abort();
    if (trace.duration_ns[row] < 0 || trace.end_ns(row) < trace.start_ns[row]) std::abort();
    if (row > 0 && trace.start_ns[row] < trace.start_ns[row - 1]) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  try {
    check_rows(ridge::doctor::read_nsys(file.path()));
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer.
  }
  return 0;
}
