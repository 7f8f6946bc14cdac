#include "ridge/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "ridge/base/cpu/file_pages.h"
#include "ridge/base/descriptor.h"
#include "ridge/base/error.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(std::string_view action, const fs::path& path, int code) {
  throw UserError(fmt::format("cannot {} '{}': {}", action, path.string(), std::strerror(code)));
}

/// Bytes of the regular file behind `descriptor`.
size_t size_of_file(int descriptor, const fs::path& path) {
  struct stat status;
  if (::fstat(descriptor, &status) != 0) fail("read", path, errno);
  if (S_ISDIR(status.st_mode)) fail("read", path, EISDIR);
  check(S_ISREG(status.st_mode), "cannot read '{}': not a regular file", path.string());
  return static_cast<size_t>(status.st_size);
}

// Bytes of a file's name in that of its temporary one, which is no longer than names may be.
constexpr size_t kMostOfName = 100;

// O_NONBLOCK so that a named pipe is refused by its type instead of waited for.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

bool is_device(const fs::path& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

/// `path`, or what it points to when it is a symbolic link to something that exists.
fs::path resolve_link(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target;
}

}  // namespace

std::string read_file(const fs::path& path, size_t limit) {
  const Descriptor file(::open(path.c_str(), kReadFlags));
  if (file.get() < 0) fail("open", path, errno);
  const size_t size = size_of_file(file.get(), path);
  check(size <= limit, "'{}' is too large; got {} bytes, at most {}", path.string(), size, limit);
  // Files under /proc and /sys state the size 0 or 4096 whatever they hold: read to the end.
  std::string content;
  content.resize(size + 1);
  size_t done = 0;
  while (true) {
    const ssize_t got = ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
    check(done <= limit, "'{}' is too large; got more than {} bytes", path.string(), limit);
    if (done == content.size()) content.resize(done + 65536);
  }
  content.resize(done);
  return content;
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const Descriptor file(::open(path.c_str(), kReadFlags));
  if (file.get() < 0) fail("open", path, errno);
  const size_t size = size_of_file(file.get(), path);
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail("map", path, errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
  add_file_pages(address, size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  remove_file_pages(bytes_.data());
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

FileWriter::FileWriter(fs::path path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail("create", path_, errno);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(Bytes bytes) {
  check_internal(descriptor_ >= 0, "write to '{}' after finish", path_.string());
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("write", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void FileWriter::finish() {
  // Pipes and devices cannot be synchronised and say EINVAL or ENOTSUP.
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != ENOTSUP) fail("write", path_, errno);
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail("write", path_, errno);
}

void stream_file_atomically(const fs::path& path, FunctionRef<void(ByteSink)> body) {
  const fs::path target = resolve_link(path);
  if (std::error_code error; fs::is_directory(target, error)) fail("write", target, EISDIR);
  const bool direct = is_device(target);
  const fs::path written =
      direct ? target
             : target.parent_path() / fmt::format(".tmp-{}-{}",
                                                  target.filename().string().substr(0, kMostOfName),
                                                  unique_suffix());
  try {
    FileWriter file(written);
    body([&](Bytes bytes) { file.write(bytes); });
    file.finish();
    if (!direct && ::rename(written.c_str(), target.c_str()) != 0) fail("write", target, errno);
  } catch (...) {
    if (!direct) ::unlink(written.c_str());
    throw;
  }
  if (!direct) sync_folder(target.parent_path());
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  stream_file_atomically(path, [&](ByteSink sink) { sink(as_bytes(content)); });
}

void sync_folder(const fs::path& folder) {
  const fs::path path = folder.empty() ? "." : folder;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0) fail("open", path, errno);
  // Some network file systems cannot synchronise a folder and say so.
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) fail("write", path, errno);
}

std::string unique_suffix() {
  std::random_device device;
  const uint64_t random = (uint64_t{device()} << 32) | device();
  return fmt::format("{}-{:016x}", ::getpid(), random);
}

}  // namespace ridge
