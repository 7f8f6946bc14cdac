#include "ridge/io/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "ridge/base/cpu/file_pages.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::user_error;
using Names = std::vector<std::string>;

void put(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

TEST(File, ReadsAllBytes) {
  const test::TempFolder folder;
  const std::string content("a\0b\xff\n", 5);
  put(folder / "f", content);
  put(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "f"), content);
  EXPECT_EQ(read_file(folder / "empty"), "");
  EXPECT_EQ(as_text(MappedFile(folder / "f").bytes()), content);
  EXPECT_EQ(MappedFile(folder / "empty").bytes().size(), 0u);
}

TEST(File, ReadsWhatStatesNoSize) {
  const std::string status = read_file("/proc/self/status");
  EXPECT_NE(status.find("Pid:"), std::string::npos);
}

TEST(File, RefusesWithPathAndReason) {
  const test::TempFolder folder;
  put(folder / "f", "12345");
  EXPECT_EQ(read_file(folder / "f", 5), "12345");
  EXPECT_EQ(user_error([&] { read_file(folder / "f", 4); }),
            "'" + (folder / "f").string() + "' is too large; got 5 bytes, at most 4");
  EXPECT_EQ(user_error([&] { read_file(folder / "none"); }),
            "cannot open '" + (folder / "none").string() + "': No such file or directory");
  EXPECT_EQ(user_error([&] { read_file(folder.path()); }),
            "cannot read '" + folder.path().string() + "': Is a directory");
  EXPECT_NE(user_error([&] { MappedFile(folder / "none"); }).find("No such file"),
            std::string::npos);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(user_error([&] { read_file(folder / "pipe"); }).find("not a regular file"),
            std::string::npos);
  EXPECT_NE(user_error([&] { read_file("/proc/self/status", 10); }).find("more than 10 bytes"),
            std::string::npos);
}

// KiB of the mapping that begins there which are in memory.
int64_t resident_kib(const void* address) {
  std::istringstream lines(read_file("/proc/self/smaps"));
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(address) << '-';
  bool is_found = false;
  for (std::string line; std::getline(lines, line);) {
    is_found = is_found || line.starts_with(begin.str());
    if (is_found && line.starts_with("Rss:")) return std::stoll(line.substr(4));
  }
  return -1;
}

TEST(File, PagesOfMapsAreGivenBackAndComeAgain) {
  const test::TempFolder folder;
  std::string content(1 << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 / 5);
  put(folder / "f", content);
  const MappedFile file(folder / "f");
  const char* const begin = as_text(file.bytes()).data();
  EXPECT_EQ(as_text(file.bytes()), content);
  EXPECT_EQ(resident_kib(begin), 1024);
  release_file_pages(begin + 1, 512 << 10);
  // The first page has a byte that is not of this part, and the last one others.
  EXPECT_LE(resident_kib(begin), 512 + 64);
  EXPECT_GE(resident_kib(begin), 512 + 4);
  EXPECT_EQ(as_text(file.bytes()), content);
  EXPECT_EQ(resident_kib(begin), 1024);
  // Other memory keeps its bytes, and so does what ends behind a file.
  const std::string other = content;
  release_file_pages(content.data(), content.size());
  EXPECT_EQ(content, other);
  release_file_pages(begin, size_t{1} << 40);
  EXPECT_EQ(resident_kib(begin), 1024);
}

TEST(File, MapsCanBeMoved) {
  const test::TempFolder folder;
  put(folder / "a", "first");
  put(folder / "b", "second");
  MappedFile a(folder / "a");
  MappedFile moved(std::move(a));
  EXPECT_EQ(as_text(moved.bytes()), "first");
  moved = MappedFile(folder / "b");
  EXPECT_EQ(as_text(moved.bytes()), "second");
}

TEST(File, WritesAndReplaces) {
  const test::TempFolder folder;
  write_file_atomically(folder / "f", "one");
  EXPECT_EQ(read_file(folder / "f"), "one");
  write_file_atomically(folder / "f", "");
  EXPECT_EQ(read_file(folder / "f"), "");
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(File, FailedBodyLeavesTheOldFile) {
  const test::TempFolder folder;
  write_file_atomically(folder / "f", "old");
  const std::string error = user_error([&] {
    stream_file_atomically(folder / "f", [](ByteSink sink) {
      sink(as_bytes("half"));
      throw UserError("no more");
    });
  });
  EXPECT_EQ(error, "no more");
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(File, NamesMayBeAsLongAsTheSystemHasThem) {
  const test::TempFolder folder;
  const std::string name(255, 'n');
  write_file_atomically(folder / name, "x");
  EXPECT_EQ(read_file(folder / name), "x");
  EXPECT_EQ(folder.names(), std::vector<std::string>{name});
}

TEST(File, FullDeviceIsAnError) {
  EXPECT_EQ(user_error([] { write_file_atomically("/dev/full", "x"); }),
            "cannot write '/dev/full': No space left on device");
  write_file_atomically("/dev/null", "x");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(File, UnwritablePlacesAreErrors) {
  const test::TempFolder folder;
  EXPECT_NE(user_error([&] {
              write_file_atomically(folder / "no" / "f", "x");
            }).find("No such file or directory"),
            std::string::npos);
  EXPECT_NE(user_error([&] { write_file_atomically(folder.path(), "x"); }).find("Is a directory"),
            std::string::npos);
  EXPECT_EQ(folder.names(), Names{});
}

TEST(File, LinkKeepsPointing) {
  const test::TempFolder folder;
  put(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "target"), "new");
  EXPECT_EQ(folder.names(), (Names{"link", "target"}));
}

// A child with a limit on file sizes stands for a disk that fills up in the middle of a file.
TEST(File, RunningOutOfSpaceLeavesTheOldFile) {
  const test::TempFolder folder;
  write_file_atomically(folder / "f", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error =
        user_error([&] { write_file_atomically(folder / "f", std::string(10000, 'x')); });
    ::_exit(error.ends_with("File too large") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder.names(), Names{"f"});
}

}  // namespace
}  // namespace ridge
