// Programs that write all over their working folder, which stays as it was.
#include "ridge/attach/folders/sandbox.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

#include "ridge/attach/folders/folder_copy.h"
#include "ridge/attach/process/workplace.h"
#include "tests/attach/program_run.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;
using test::comes;
using test::Ending;
using test::is_alive;
using test::pids_in;
using test::TempFolder;
using test::text_of;
using test::user_error;

constexpr uid_t kNobody = 65534;

/// While it lives, this process works there.
class In {
 public:
  explicit In(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  In(const In&) = delete;
  In& operator=(const In&) = delete;
  ~In() { fs::current_path(before_); }

 private:
  fs::path before_;
};

void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

/// Everything that a folder holds: names, kinds, modes, owners, times, links, text.
std::map<std::string, std::string> picture(const fs::path& folder) {
  std::map<std::string, std::string> all;
  const auto add = [&](const fs::path& path) {
    struct stat status{};
    ASSERT_EQ(::lstat(path.c_str(), &status), 0);
    std::ostringstream text;
    text << std::oct << status.st_mode << std::dec << " " << status.st_ino << " " << status.st_nlink
         << " " << status.st_uid << " " << status.st_size << " " << status.st_mtim.tv_sec << "."
         << status.st_mtim.tv_nsec << " ";
    if (S_ISLNK(status.st_mode)) text << fs::read_symlink(path).string();
    if (S_ISREG(status.st_mode)) text << text_of(path);
    all[path.string()] = text.str();
  };
  add(folder);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) add(entry.path());
  return all;
}

/// A working folder with all that one can hold, beside a folder that it leads to.
class Tree {
 public:
  Tree() {
    fs::create_directories(path() / "data" / "deep");
    fs::create_directory(path() / "closed");
    fs::create_directory(folder_ / "outside");
    write(path() / "log", "first\n");
    write(path() / "data" / "deep" / "file", std::string(3 << 20, 'x'));
    write(path() / "data" / "gone", "soon");
    write(path() / "closed" / "file", "kept\n");
    write(folder_ / "outside" / "file", "outside\n");
    write(path() / "run.sh", "#!/bin/sh\necho started > from_script\n");
    fs::create_hard_link(path() / "log", path() / "twin");
    fs::create_symlink("data/deep", path() / "inner");
    fs::create_symlink(path() / "data", path() / "absolute");
    fs::create_symlink("../outside", path() / "outer");
    fs::create_symlink("../work/data", path() / "roundabout");
    fs::create_symlink("nowhere", path() / "dangling");
    EXPECT_EQ(::mkfifo((path() / "fifo").c_str(), 0600), 0);
    const int number = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    (path() / "socket").string().copy(name.sun_path, sizeof name.sun_path - 1);
    EXPECT_EQ(::bind(number, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    ::close(number);
    ::chmod((path() / "run.sh").c_str(), 0755);
    ::chmod((path() / "closed").c_str(), 0555);
    ::chmod(path().c_str(), 0751);
    ::chmod(folder_.path().c_str(), 0755);
  }
  ~Tree() { ::chmod((path() / "closed").c_str(), 0755); }

  fs::path path() const { return folder_ / "work"; }
  fs::path outside() const { return folder_ / "outside"; }
  const TempFolder& folder() const { return folder_; }
  void give_to(uid_t user) const {
    EXPECT_EQ(::chown(folder_.path().c_str(), user, user), 0);
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
      EXPECT_EQ(::lchown(entry.path().c_str(), user, user), 0);
  }

 private:
  TempFolder folder_;
};

// Changes, makes, deletes and renames; $1 is the working folder's path, as words and settings have
// it. Says what it sees then.
constexpr const char* kWritesAllOver = R"SH(
set -e
test "$(pwd)" = "$1"; test "$PLACE" = "$1/data"; test "$PWD" = "$1"
test "$(stat -c %a .)" = 751
echo more >> log
cat log
echo twin >> twin
rm data/gone; mkdir data/gone; echo new > data/gone/file
mv data/deep/file data/moved
printf y >> data/moved
rm -r data/deep; mkdir data/deep; test -z "$(ls data/deep)"
echo a > "$1/by_path"; test -e by_path
echo b > "$PLACE/by_setting"; test -e data/by_setting
echo c > absolute/by_link; test -e data/by_link
echo d > roundabout/by_link2; test -e data/by_link2
echo e > inner/by_link3; test -e data/deep/by_link3
cat outer/file
test "$(cat closed/file)" = kept
chmod 600 run.sh; touch -d 2001-01-01 run.sh; chmod 755 run.sh
./run.sh; cat from_script
test -p fifo; test -L dangling
mkdir shut; echo x > shut/x; chmod 555 shut; mkdir none; chmod 000 none
ln log third; rm twin; mkfifo new_fifo
id -u > "$2/id"
)SH";

CommandTemplate writes_all_over() {
  return CommandTemplate({"sh", "-c", kWritesAllOver, "sh", fs::current_path().string(), "{out}"});
}

ProgramRequest placed(const Workplace& place) {
  ProgramRequest request;
  request.supervisor = RIDGE_PROGRAM;
  request.environment = {{"PLACE", (fs::current_path() / "data").string()}};
  place.place(request, 1);
  return request;
}

/// Whether the system lets third-party programs mount what we would.
bool can_overlay(const std::string& how) {
  const TempFolder folder;
  for (const char* name : {"low", "up", "work"}) fs::create_directory(folder / name);
  const std::string at = folder.path().string();
  const bool can =
      std::system(("unshare " + how + " mount -t overlay none -o lowerdir=" + at +
                   "/low,upperdir=" + at + "/up,workdir=" + at + "/work " + at + "/low 2>/dev/null")
                      .c_str()) == 0;
  std::error_code ignored;
  fs::permissions(folder / "work" / "work", fs::perms::owner_all, ignored);
  return can;
}

/// Copies there take no space.
bool shares_blocks() {
  const TempFolder folder;
  write(folder / "a", "text");
  const std::string at = folder.path().string();
  return std::system(("cp --reflink=always " + at + "/a " + at + "/b 2>/dev/null").c_str()) == 0;
}

bool is_possible(SandboxWay way) {
#ifdef __SANITIZE_THREAD__
  // A process with more than one thread gets no user namespace, and ThreadSanitizer starts threads.
  if (way == SandboxWay::kUserOverlay) return false;
#endif
  if (way == SandboxWay::kOverlay) return can_overlay("-m");
  return way != SandboxWay::kUserOverlay || can_overlay("-Umr");
}

/// Two runs at once and one after the other: none sees what another wrote.
void run_all_over(const Tree& tree, SandboxWay way) {
  const In in(tree.path());
  const auto before = picture(tree.path()), outside = picture(tree.outside());
  std::string gone;
  {
    const Workplace first(writes_all_over(), Consent::kSandbox, way);
    const Workplace second(writes_all_over(), Consent::kSandbox, way);
    for (const Workplace* place : {&first, &second}) {
      const ProgramRequest request = placed(*place);
      const ProgramEnd end = test::run(request);
      EXPECT_EQ(end.exit_code, 0) << text_of(place->output_path());
      EXPECT_EQ(text_of(place->output_path()), "first\nmore\noutside\nstarted\n");
      EXPECT_EQ(text_of(request.command.back() + "/id"), std::to_string(::geteuid()) + "\n");
      gone = request.folders.back();
    }
    EXPECT_EQ(picture(tree.path()), before);
  }
  EXPECT_EQ(picture(tree.path()), before);
  EXPECT_EQ(picture(tree.outside()), outside);
  EXPECT_FALSE(fs::exists(gone));
}

/// In a process of its own, whose failures count here; 77: it skipped.
void in_process(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(::testing::Test::IsSkipped() ? 77 : ::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "not possible here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// Runs `body` as another user, who may not mount.
void as_nobody(const TempFolder& folder, const std::function<void()>& body) {
  in_process([&] {
    ::setenv("TMPDIR", folder.path().c_str(), 1);
    ASSERT_EQ(::setgid(kNobody), 0);
    ASSERT_EQ(::setuid(kNobody), 0);
    ::prctl(PR_SET_DUMPABLE, 1);  // as after an exec: else /proc/self is root's
    if (::access(RIDGE_PROGRAM, X_OK) != 0) GTEST_SKIP();
    body();
  });
}

class SandboxWays : public ::testing::TestWithParam<SandboxWay> {};

TEST_P(SandboxWays, LeaveTheWorkingFolderAsItWas) {
  if (!is_possible(GetParam())) GTEST_SKIP() << "the system does not let us";
  run_all_over(Tree(), GetParam());
}

TEST_P(SandboxWays, LeaveItForOtherUsersToo) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const Tree tree;
  tree.give_to(kNobody);
  const TempFolder temporary;
  ASSERT_EQ(::chown(temporary.path().c_str(), kNobody, kNobody), 0);
  as_nobody(temporary, [&] {
    const In in(tree.path());
    if (GetParam() == SandboxWay::kOverlay) {
      const std::string said = user_error(
          [&] { Workplace(writes_all_over(), Consent::kSandbox, SandboxWay::kOverlay); });
      EXPECT_NE(said.find("mount namespace: Operation not permitted"), said.npos) << said;
    } else if (!is_possible(GetParam())) {
      GTEST_SKIP();
    } else {
      run_all_over(tree, GetParam());
    }
    EXPECT_TRUE(fs::is_empty(temporary.path()));
  });
}

TEST_P(SandboxWays, LeaveNothingWhenRidgeIsKilled) {
  if (!is_possible(GetParam())) GTEST_SKIP() << "the system does not let us";
  const Tree tree;
  const In in(tree.path());
  const auto before = picture(tree.path());
  for (const bool also_supervisor : {false, true}) {
    const fs::path told = tree.folder() / (also_supervisor ? "told2" : "told");
    const pid_t ridge = ::fork();
    if (ridge == 0) {
      const Workplace place(
          CommandTemplate({"sh", "-c", "echo more >> log; mkdir a; chmod 0 a; exec sleep 1000"}),
          Consent::kSandbox,
          GetParam());
      const ProgramRequest request = placed(place);
      const Program program(request);
      write(told, std::to_string(program.pid()) + "\n" + request.folders[0] + "\n");
      for (;;) ::pause();
    }
    const pid_t program = pids_in(told, 1)[0];
    std::string folder;
    ASSERT_TRUE(comes([&] {
      std::istringstream lines(text_of(told));
      std::getline(lines, folder);
      return static_cast<bool>(std::getline(lines, folder)) && !lines.eof();
    }));
    const pid_t supervisor = test::parent_of(program);
    const Ending ending({ridge, supervisor, program});
    EXPECT_TRUE(fs::exists(folder));
    if (also_supervisor) ::kill(supervisor, SIGKILL);
    ::kill(ridge, SIGKILL);
    ::waitpid(ridge, nullptr, 0);
    EXPECT_TRUE(comes([&] { return ending.all_gone(); }));
    if (also_supervisor) {
      EXPECT_TRUE(fs::exists(folder));
      const Workplace next(CommandTemplate({"true"}), Consent::kRerun);
      EXPECT_FALSE(fs::exists(folder));
    } else {
      EXPECT_TRUE(comes([&] { return !fs::exists(folder); }));
    }
    fs::remove(told);
  }
  EXPECT_EQ(picture(tree.path()), before);
}

std::string name_of(const ::testing::TestParamInfo<SandboxWay>& way) {
  constexpr const char* kNames[] = {"Any", "Overlay", "UserOverlay", "Copy"};
  return kNames[static_cast<size_t>(way.param)];
}

INSTANTIATE_TEST_SUITE_P(All,
                         SandboxWays,
                         ::testing::Values(SandboxWay::kOverlay,
                                           SandboxWay::kUserOverlay,
                                           SandboxWay::kCopy,
                                           SandboxWay::kAny),
                         name_of);

TEST(Sandbox, TakesTheFirstWayThatThereIs) {
  const Tree tree;
  const In in(tree.path());
  const Workplace any(CommandTemplate({"true"}), Consent::kSandbox);
  const std::string expected = can_overlay("-m")     ? "through an overlay of its own"
                               : can_overlay("-Umr") ? "through an overlay in a user namespace"
                                                     : "a copy of the working folder";
  EXPECT_NE(any.how().find(expected), std::string::npos) << any.how();
  EXPECT_NE(any.how().find("not kept apart"), std::string::npos);
}

TEST(Sandbox, SaysWhereItCannotBe) {
  const Tree tree;
  const auto said_in = [](const fs::path& folder) {
    const In in(folder);
    return user_error([] { Workplace(CommandTemplate({"true"}), Consent::kSandbox); });
  };
  EXPECT_NE(said_in("/").find("'/'"), std::string::npos);
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TMPDIR", (tree.path() / "data").c_str(), 1);
  for (const fs::path& folder : {tree.path(), tree.path() / "data"})
    EXPECT_NE(said_in(folder).find("set TMPDIR to a folder outside"), std::string::npos);
  EXPECT_EQ(said_in(tree.outside()), "no error");
  if (before == nullptr)
    ::unsetenv("TMPDIR");
  else
    ::setenv("TMPDIR", kept.c_str(), 1);
  EXPECT_FALSE(fs::exists(tree.path() / "data" / "tried"));
  in_process([&] {
    const fs::path gone = tree.folder() / "gone";
    fs::create_directory(gone);
    fs::current_path(gone);
    fs::remove(gone);
    EXPECT_NE(user_error([] {
                Workplace(CommandTemplate({"true"}), Consent::kSandbox);
              }).find("working folder"),
              std::string::npos);
  });
}

TEST(Sandbox, OneThatCannotBeEnteredStartsNothing) {
  const TempFolder folder;
  ProgramRequest request = test::shell("echo ran > " + (folder / "ran").string());
  request.sandbox = {.folders = {(folder / "nowhere").string()}, .state = folder.path().string()};
  const std::string said = user_error([&] { Program program(request); });
  EXPECT_NE(said.find("nowhere' apart: cannot "), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(folder / "ran"));
}

// Data that is mounted within the working folder would be hidden by an overlay over it alone.
TEST(Sandbox, KeepsWhatIsMountedInTheFolderApartToo) {
  if (::geteuid() != 0 || !can_overlay("-m")) GTEST_SKIP() << "may not mount";
  in_process([] {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    const Tree tree;
    const fs::path mounted = tree.path() / "a b";
    fs::create_directory(mounted);
    ASSERT_EQ(::mount("none", mounted.c_str(), "tmpfs", 0, nullptr), 0);
    write(mounted / "file", "old\n");
    const auto before = picture(tree.path());
    const In in(tree.path());
    for (const SandboxWay way : {SandboxWay::kOverlay, SandboxWay::kCopy}) {
      const Workplace place(
          CommandTemplate({"sh", "-c", "cat 'a b/file'; echo new > 'a b/file'; cat 'a b/file'"}),
          Consent::kSandbox,
          way);
      EXPECT_EQ(test::run(placed(place)).exit_code, 0);
      EXPECT_EQ(text_of(place.output_path()), "old\nnew\n");
    }
    EXPECT_EQ(picture(tree.path()), before);
    fs::current_path("/");
    EXPECT_EQ(::umount(mounted.c_str()), 0);
  });
}

// In a container the folder for temporary files may lie on an overlay.
TEST(Sandbox, OnAnOverlayThereIsACopy) {
  if (::geteuid() != 0 || !can_overlay("-m")) GTEST_SKIP() << "may not mount";
  in_process([] {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    const TempFolder folder;
    for (const char* name : {"low", "up", "work"}) fs::create_directory(folder / name);
    const std::string at = folder.path().string();
    ASSERT_EQ(
        ::mount("none",
                (at + "/low").c_str(),
                "overlay",
                0,
                ("lowerdir=" + at + "/low,upperdir=" + at + "/up,workdir=" + at + "/work").c_str()),
        0);
    ::setenv("TMPDIR", (at + "/low").c_str(), 1);
    {
      const Tree tree;
      run_all_over(tree, SandboxWay::kAny);
      const In in(tree.path());
      const Workplace place(CommandTemplate({"true"}), Consent::kSandbox);
      EXPECT_NE(place.how().find("a copy of the working folder"), std::string::npos) << place.how();
      EXPECT_NE(place.how().find("no overlay: "), std::string::npos) << place.how();
    }
    EXPECT_EQ(::umount((at + "/low").c_str()), 0);
  });
}

TEST(FolderCopy, KeepsLinksAndTimes) {
  const Tree tree;
  const TempFolder other;
  const fs::path to = other / "work";
  copy_folder(tree.path(), to, kMostCopiedBytes);
  EXPECT_EQ(text_of(to / "data" / "deep" / "file"), std::string(3 << 20, 'x'));
  EXPECT_TRUE(fs::equivalent(to / "log", to / "twin"));
  EXPECT_EQ(fs::read_symlink(to / "inner"), "data/deep");
  EXPECT_EQ(fs::read_symlink(to / "dangling"), "nowhere");
  EXPECT_EQ(fs::canonical(to / "absolute"), fs::canonical(to / "data"));
  EXPECT_EQ(fs::canonical(to / "roundabout"), fs::canonical(to / "data"));
  EXPECT_EQ(fs::canonical(to / "outer"), fs::canonical(tree.outside()));
  EXPECT_TRUE(fs::is_fifo(to / "fifo"));
  EXPECT_FALSE(fs::exists(to / "socket"));
  for (const char* name : {"", "closed", "closed/file", "log", "data/deep"}) {
    EXPECT_EQ(fs::last_write_time(to / name), fs::last_write_time(tree.path() / name)) << name;
    EXPECT_EQ(fs::status(to / name).permissions(), fs::status(tree.path() / name).permissions());
  }
  remove_tree(to);
  EXPECT_FALSE(fs::exists(to));
  EXPECT_TRUE(fs::exists(tree.outside() / "file"));
}

TEST(FolderCopy, StopsAtItsLimit) {
  if (shares_blocks()) GTEST_SKIP() << "copies take no room here";
  const Tree tree;
  const TempFolder other;
  for (const int64_t limit : {int64_t{3} << 20, int64_t{5000}, int64_t{0}})
    EXPECT_NE(user_error([&] {
                copy_folder(tree.path(), other / std::to_string(limit), limit);
              }).find("would have to be copied"),
              std::string::npos);
  EXPECT_EQ(user_error([&] { copy_folder(tree.path(), other / "all", int64_t{4} << 20); }),
            "no error");
}

// Files that are large only by name take no time to refuse.
TEST(FolderCopy, RefusesWhatWouldTakeTooLong) {
  if (shares_blocks()) GTEST_SKIP() << "copies take no room here";
  const Tree tree;
  write(tree.path() / "huge", "");
  fs::resize_file(tree.path() / "huge", uintmax_t(kMostCopiedBytes) + 1);
  const In in(tree.path());
  const std::string said = user_error(
      [] { Workplace(CommandTemplate({"true"}), Consent::kSandbox, SandboxWay::kCopy); });
  EXPECT_NE(said.find("more than 2048 MiB"), std::string::npos) << said;
  for (const char* part : {"{out}", "--rerun", "a copy failed"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST(FolderCopy, PathsAreMovedWhereTheyAreWhole) {
  const auto moved = [](std::string_view text) { return with_moved_paths(text, "/a/work", "/b"); };
  for (const auto& [text, expected] : {std::pair{"/a/work", "/b"},
                                       {"/a/work/x", "/b/x"},
                                       {"--out=/a/work/x", "--out=/b/x"},
                                       {"-I/a/work", "-I/b"},
                                       {"/lib:/a/work/bin:/a/work", "/lib:/b/bin:/b"},
                                       {"cd '/a/work' && ls \"/a/work/\"", "cd '/b' && ls \"/b/\""},
                                       {"@/a/work/args", "@/b/args"},
                                       {"/a/workshop", "/a/workshop"},
                                       {"/a/work.old", "/a/work.old"},
                                       {"/x/a/work", "/x/a/work"},
                                       {"data/a/work", "data/a/work"},
                                       {"./a/work", "./a/work"},
                                       {"/a/work/../data", "/a/work/../data"},
                                       {"", ""},
                                       {"/a/wor", "/a/wor"}})
    EXPECT_EQ(moved(text), expected);
}

}  // namespace
}  // namespace ridge::attach
