// `ridge watch` as a user runs it: with a process that runs, with a command, in a terminal.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "tests/cli/ridge_process.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using nlohmann::json;
using test::Ended;
using test::ridge;
using test::RidgeProcess;
using test::TempFolder;

// A process to watch, gone at the end.
class Sleeper {
 public:
  Sleeper() {
    const char* argv[] = {"sleep", "1000", nullptr};
    if (posix_spawnp(&pid_, "sleep", nullptr, nullptr, const_cast<char**>(argv), environ) != 0)
      throw std::runtime_error("cannot start sleep");
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::string pid() const { return std::to_string(pid_); }
  bool runs() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = -1;
};

// A shell under `ridge watch` waits with this until `ridge watch` has written to stderr, which it
// does at its second look.
constexpr const char* kUntilSeen = "until [ -s .err ]; do sleep 0.01; done; ";

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(Watch, SaysWhatItNeeds) {
  const TempFolder folder;
  const auto says = [&](std::vector<std::string> words, const std::string& text) {
    words.insert(words.begin(), "watch");
    const Ended ended = ridge(folder.path(), words);
    EXPECT_EQ(ended.code, 2);
    EXPECT_NE(ended.err.find(text), std::string::npos) << ended.err;
  };
  says({}, "ridge watch --pid N, or ridge watch -- CMD");
  says({"--"}, "no command stands behind");
  says({"--pid", "1", "--", "true"}, "--pid and a command");
  says({"--pid", "4194304"}, "there is no process 4194304");
  says({"--pid", "1", "--quiet"}, "--json or --prometheus PORT");
  says({"--pid", "1", "--output", "x"}, "add --json");
  says({"--pid", "1", "--jsn"}, "--json");
  says({"--interval", "0", "--", "true"}, "--interval");
  const Ended ended = ridge(folder.path(), {"watch", "--", "./no-such-program"});
  EXPECT_EQ(ended.code, 127);
  EXPECT_NE(ended.err.find("no-such-program"), std::string::npos) << ended.err;
  EXPECT_EQ(folder.names(), (std::vector<std::string>{".err", ".out"}));
}

TEST(Watch, AProcessAsJsonUntilItEnds) {
  const TempFolder folder;
  std::optional<Sleeper> sleeper(std::in_place);
  RidgeProcess watch(
      folder.path(),
      {"watch", "--json", "--interval", "0.1", "--price-per-hour", "3.6", "--pid", sleeper->pid()});
  EXPECT_TRUE(watch.comes([&] { return !watch.out().empty(); })) << watch.err();
  sleeper.reset();
  const Ended ended = watch.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  const std::vector<json> lines = lines_of(ended.out);
  ASSERT_GE(lines.size(), 2u) << ended.err;
  for (const json& line : lines) {
    EXPECT_EQ(line.at("schema"), "ridge.watch/1");
    EXPECT_EQ(line.at("program"), "sleep");
    EXPECT_EQ(line.at("steps").at("why"), "not known (start it with ridge watch -- CMD)");
  }
  EXPECT_TRUE(lines.back().at("is_over").get<bool>());
  EXPECT_GT(lines.front().at("memory").at("resident_bytes").get<int64_t>(), 0);
}

TEST(Watch, ACommandKeepsItsWordsOutputAndExitCode) {
  const TempFolder folder;
  const Ended ended = ridge(folder.path(),
                            {"watch",
                             "--json",
                             "--interval",
                             "0.1",
                             "--",
                             "sh",
                             "-c",
                             std::string("printf '%s|' \"$@\"; ") + kUntilSeen + "exit 7",
                             "sh",
                             "[a,b]",
                             "--",
                             "--json",
                             "",
                             "--pid"});
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_EQ(ended.out, "[a,b]|--|--json||--pid|");
  const std::vector<json> lines = lines_of(ended.err);
  ASSERT_GE(lines.size(), 1u);
  EXPECT_TRUE(lines.back().at("is_over").get<bool>());
}

TEST(Watch, ASupervisorThatIsKilledIsSaidAndTheEndTold) {
  const TempFolder folder;
  // Not before it has said that the program runs.
  const Ended ended = ridge(folder.path(),
                            {"watch",
                             "--quiet",
                             "--json",
                             "--",
                             "/bin/sh",
                             "-c",
                             std::string(kUntilSeen) + "kill -9 $PPID; exec sleep 1000"});
  EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.err;
  EXPECT_NE(ended.err.find("killed the process of ridge"), std::string::npos) << ended.err;
}

TEST(Watch, ACommandThatASignalEnds) {
  const TempFolder folder;
  const Ended ended = ridge(folder.path(), {"watch", "--", "sh", "-c", "kill -9 $$"});
  EXPECT_EQ(ended.code, 137);
  EXPECT_NE(ended.err.find("ridge watch: sh ended after"), std::string::npos) << ended.err;
}

TEST(Watch, LinesComeWithTheViewInAFile) {
  const TempFolder folder;
  const Ended ended = ridge(folder.path(),
                            {"watch",
                             "--json",
                             "--output",
                             "seen.json",
                             "--interval",
                             "0.2",
                             "--",
                             "sh",
                             "-c",
                             kUntilSeen});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "");
  EXPECT_NE(ended.err.find(", steps: not known"), std::string::npos) << ended.err;
  EXPECT_GE(lines_of(test::text_of(folder / "seen.json")).size(), 2u);
}

TEST(Watch, AFullDiskDoesNotEndTheProgram) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  const TempFolder folder;
  const Ended ended = ridge(folder.path(),
                            {"watch",
                             "--json",
                             "--output",
                             "/dev/full",
                             "--interval",
                             "0.1",
                             "--",
                             "sh",
                             "-c",
                             std::string(kUntilSeen) + "echo whole"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "whole\n");
  EXPECT_NE(ended.err.find("goes on unwatched"), std::string::npos) << ended.err;
}

// The answer to GET /metrics at a port of this machine.
std::string scrape(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string text;
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    ::send(socket, kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
    char buffer[4096];
    for (ssize_t size; (size = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
      text.append(buffer, static_cast<size_t>(size));
  }
  ::close(socket);
  return text;
}

TEST(Watch, ServesPrometheusAndKeepsItsPort) {
  const TempFolder folder, other;
  const Sleeper sleeper;
  RidgeProcess watch(folder.path(),
                     {"watch", "--pid", sleeper.pid(), "--prometheus", "0", "--interval", "0.1"});
  ASSERT_TRUE(watch.says("/metrics\n")) << watch.err();
  std::smatch match;
  const std::string said = watch.err();
  ASSERT_TRUE(std::regex_search(said, match, std::regex("http://127.0.0.1:([0-9]+)/metrics")));
  ASSERT_TRUE(watch.says(", steps: not known")) << watch.err();  // a second sample
  const std::string text = scrape(std::stoi(match[1]));
  EXPECT_NE(text.find("\nprocess_threads 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("program=\"sleep\""), std::string::npos) << text;
  const Ended second =
      ridge(other.path(), {"watch", "--pid", sleeper.pid(), "--prometheus", match[1]});
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another program has this port"), std::string::npos) << second.err;
  watch.send(SIGINT);
  EXPECT_EQ(watch.wait().code, 0);
  EXPECT_TRUE(sleeper.runs());
}

// A program, mostly `ridge watch`, on a terminal of its own.
class Terminal {
 public:
  Terminal(std::vector<std::string> words, winsize size) {
    if (words[0] == "watch") words.insert(words.begin(), RIDGE_PROGRAM);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::forkpty(&descriptor_, nullptr, nullptr, &size);
    if (pid_ < 0) throw std::runtime_error("cannot open a terminal");
    if (pid_ == 0) {
      ::setenv("TERM", "xterm", 1);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::tcgetattr(descriptor_, &before_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (pid_ > 0) end(SIGKILL);
    ::close(descriptor_);
  }

  void send(int signal) const { ::kill(pid_, signal); }
  void type(std::string_view keys) const {
    EXPECT_EQ(::write(descriptor_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void resize(winsize size) const { ::ioctl(descriptor_, TIOCSWINSZ, &size); }
  /// Whether `text` comes to stand on it within a minute.
  bool shows(const std::string& text) {
    while (text_.find(text) == std::string::npos)
      if (!read()) return text_.find(text) != std::string::npos;
    return true;
  }
  void forget() { text_.clear(); }
  const std::string& text() const { return text_; }
  /// Reads to its end; the exit code.
  int wait() {
    while (read()) continue;
    return end(0);
  }
  /// Whether keys are read as they were before it began.
  bool is_as_before() const {
    termios now{};
    ::tcgetattr(descriptor_, &now);
    return now.c_lflag == before_.c_lflag;
  }

 private:
  bool read() {
    pollfd polled{descriptor_, POLLIN, 0};
    if (::poll(&polled, 1, 60'000) <= 0) return false;
    char buffer[4096];
    const ssize_t size = ::read(descriptor_, buffer, sizeof buffer);
    if (size <= 0) return false;  // EIO once nobody has it open
    text_.append(buffer, static_cast<size_t>(size));
    return true;
  }
  int end(int signal) {
    if (signal != 0) ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  pid_t pid_ = -1;
  int descriptor_ = -1;
  termios before_{};
  std::string text_;
};

constexpr winsize kUsualSize = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
constexpr winsize kWideSize = {.ws_row = 50, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
constexpr const char* kEnter = "\x1b[?1049h";
constexpr const char* kLeave = "\x1b[?1049l";

TEST(WatchTerminal, ShowsAScreenFollowsTheSizeAndQuitsByAKey) {
  const Sleeper sleeper;
  Terminal terminal({"watch", "--pid", sleeper.pid(), "--interval", "0.1"}, kUsualSize);
  ASSERT_TRUE(terminal.shows(kEnter));
  ASSERT_TRUE(terminal.shows("sleep (" + sleeper.pid() + ")")) << terminal.text();
  ASSERT_TRUE(terminal.shows("q quits")) << terminal.text();
  EXPECT_FALSE(terminal.is_as_before());
  terminal.resize(kWideSize);
  // The head's end is 199 cells from its beginning then.
  ASSERT_TRUE(terminal.shows(std::string(120, ' '))) << terminal.text();
  terminal.forget();
  terminal.type("q");
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_NE(terminal.text().find(kLeave), std::string::npos);
  EXPECT_NE(terminal.text().find("was left running"), std::string::npos) << terminal.text();
  EXPECT_TRUE(terminal.is_as_before());
  EXPECT_TRUE(sleeper.runs());
}

TEST(WatchTerminal, GivesTheTerminalBackHoweverItEnds) {
  const Sleeper sleeper;
  const std::vector<std::string> words = {"watch", "--pid", sleeper.pid(), "--interval", "0.1"};
  for (const auto& [signal, code] :
       {std::pair{SIGINT, 0}, {SIGTERM, 143}, {SIGQUIT, 131}, {SIGHUP, 129}}) {
    Terminal terminal(words, kUsualSize);
    ASSERT_TRUE(terminal.shows("q quits")) << terminal.text();
    terminal.send(signal);
    EXPECT_EQ(terminal.wait(), code);
    EXPECT_NE(terminal.text().find(kLeave), std::string::npos);
    EXPECT_TRUE(terminal.is_as_before());
  }
  const std::string gone = Sleeper().pid();
  Terminal terminal({"watch", "--pid", gone}, kUsualSize);
  EXPECT_EQ(terminal.wait(), 2);
  EXPECT_TRUE(sleeper.runs());
}

// A command of a shell that ends with 5 once it is let go.
std::string says_mine(const TempFolder& folder) {
  return "echo mine; until [ -e " + (folder / "go").string() + " ]; do sleep 0.01; done; exit 5";
}
void let_go(const TempFolder& folder) { std::ofstream(folder / "go") << ""; }

TEST(WatchTerminal, ACommandHasTheTerminalForItself) {
  const TempFolder folder;
  Terminal terminal({"watch", "--interval", "0.2", "--", "sh", "-c", says_mine(folder)},
                    kUsualSize);
  EXPECT_TRUE(terminal.shows(", steps: not known"));
  let_go(folder);
  EXPECT_EQ(terminal.wait(), 5);
  EXPECT_EQ(terminal.text().find(kEnter), std::string::npos) << terminal.text();
  EXPECT_NE(terminal.text().find("mine\r\n"), std::string::npos);
}

TEST(WatchTerminal, ACommandThatWritesElsewhereLeavesItToTheScreen) {
  const TempFolder folder;
  const std::string command = "exec \"$0\" watch --interval 0.1 -- sh -c '" + says_mine(folder) +
                              "' >" + (folder / "log").string() + " 2>&1";
  Terminal terminal({"/bin/sh", "-c", command, RIDGE_PROGRAM}, kUsualSize);
  EXPECT_TRUE(terminal.shows("Ctrl-C goes to the program")) << terminal.text();
  let_go(folder);
  EXPECT_EQ(terminal.wait(), 5);
  EXPECT_NE(terminal.text().find(kEnter), std::string::npos) << terminal.text();
  EXPECT_NE(terminal.text().find(kLeave), std::string::npos);
  const std::string log = test::text_of(folder / "log");
  EXPECT_EQ(log.find("mine\n"), 0u) << log;
  EXPECT_EQ(log.find('\x1b'), std::string::npos) << log;
}

}  // namespace
}  // namespace ridge
