#include "ridge/tune/onnx/runtime_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "ridge/base/html/markup.h"
#include "ridge/io/file.h"
#include "ridge/io/npy.h"

namespace ridge {
namespace {

constexpr const char* kScript = "runtime_peer.py";
constexpr const char* kSource = "the answer of the other runtime";
constexpr size_t kMostSaid = size_t{1} << 20, kMostShown = 300;
// How long an end of the process may go unnoticed.
constexpr int kPollMilliseconds = 50;

// A pipe that waits for nobody: it is open for both directions.
Descriptor make_fifo(const std::string& path) {
  Descriptor fifo;
  if (::mkfifo(path.c_str(), 0600) == 0)
    fifo = Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fifo.get() < 0)
    throw UserError(fmt::format("cannot make a pipe '{}': {}", path, std::strerror(errno)),
                    "let TMPDIR name a folder on a local disk");
  return fifo;
}

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return shortened(text.substr(text.rfind('\n') + 1), kMostShown);
}

std::string end_text(const attach::ProgramEnd& end) {
  if (!end.trouble.empty()) return end.trouble;
  return end.signal != 0 ? fmt::format("signal {} ended it ({})", end.signal, strsignal(end.signal))
                         : fmt::format("it ended with exit code {}", end.exit_code);
}

double seconds_of(const JsonValue& ns) {
  const double seconds = static_cast<double>(ns.as_integer(kSource)) * 1e-9;
  check(seconds >= 0, "{}: {} seconds", kSource, seconds);
  return seconds;
}

}  // namespace

std::string default_python() {
  const char* const environment = std::getenv("VIRTUAL_ENV");
  return environment == nullptr || *environment == '\0' ? "python3"
                                                        : std::string(environment) + "/bin/python";
}

RuntimePeer::RuntimePeer(const PeerRequest& request)
    : request_(request),
      folder_("peer"),
      orders_(make_fifo(folder_.path() + "/orders")),
      answers_(make_fifo(folder_.path() + "/answers")) {
  const std::string& folder = folder_.path();
  for (const auto& [name, text] : peer_files()) {
    FileWriter file(fmt::format("{}/{}", folder, name));
    file.write(as_bytes(text));
  }
  write_npz(folder + "/inputs.npz", *request.inputs);
  request_.inputs = nullptr;
  try {
    program_.emplace(attach::ProgramRequest{.command = {request.python,
                                                        fmt::format("{}/{}", folder, kScript),
                                                        folder,
                                                        std::string(name_of(request.runtime)),
                                                        request.model,
                                                        fmt::format("{}", request.threads)},
                                            .folders = {folder},
                                            .output = folder + "/output",
                                            .supervisor = request.supervisor});
  } catch (const attach::ProgramError& error) {
    throw UserError(error.message(),
                    fmt::format("give a Python that has {} by --python", name_of(request.runtime)));
  }
  version_ = answer().at("version", kSource).as_string(kSource);
  const JsonValue first = answer();
  first_seconds_ = seconds_of(first.at("first_ns", kSource));
  if (const JsonValue& peak = first.at("peak_bytes", kSource);
      !std::holds_alternative<std::nullptr_t>(peak.data()))
    peak_bytes_ = peak.as_integer(kSource);
  program_->hold();
}

// A program that is stopped ends late.
RuntimePeer::~RuntimePeer() {
  if (program_) program_->go_on();
}

void RuntimePeer::refuse(const std::string& how_it_ended) const {
  std::string said = last_line(read_file(folder_.path() + "/output", kMostSaid));
  if (said.empty()) said = how_it_ended;
  if (version_.empty())
    throw UserError(
        fmt::format("'{}' cannot run {}: {}", request_.python, title_of(request_.runtime), said),
        fmt::format("give a Python that has {} and numpy by --python", name_of(request_.runtime)));
  throw UserError(
      fmt::format(
          "{} {} cannot run '{}': {}", title_of(request_.runtime), version_, request_.model, said),
      "leave out --against");
}

// Answers from before its end come first.
JsonValue RuntimePeer::answer() {
  for (bool has_ended = false;;) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return parse_json(line, kSource);
    }
    const auto ended = program_->wait(0);
    pollfd waiting{.fd = answers_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, ended ? 0 : kPollMilliseconds) > 0) {
      std::array<char, 65536> buffer;
      const ssize_t got = ::read(answers_.get(), buffer.data(), buffer.size());
      if (got > 0) pending_.append(buffer.data(), static_cast<size_t>(got));
    } else if (ended && std::exchange(has_ended, true)) {
      refuse(end_text(*ended));
    }
  }
}

void RuntimePeer::tell(int64_t runs) {
  const std::string line = fmt::format("{}\n", runs);
  // A line is shorter than what a pipe takes at once.
  while (::write(orders_.get(), line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

std::vector<double> RuntimePeer::time_runs(int64_t runs) {
  program_->go_on();
  tell(runs);
  const JsonValue told = answer();
  program_->hold();
  std::vector<double> seconds;
  for (const JsonValue& ns : told.at("ns", kSource).as_array(kSource))
    seconds.push_back(seconds_of(ns));
  check(std::ssize(seconds) == runs, "{}: {} runs for {}", kSource, seconds.size(), runs);
  return seconds;
}

std::vector<Tensor> RuntimePeer::outputs() const {
  const std::string path = folder_.path() + "/outputs.npz";
  const MappedFile file(path);
  const NpzView arrays(file.bytes(), path);
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < arrays.names().size(); ++i)
    outputs.push_back(arrays.read(fmt::format("arr_{}", i)));
  return outputs;
}

}  // namespace ridge
