#include "ridge/attach/process/program_protocol.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

/// The words one after another; what is not there or no number makes `is_right` false.
class WordReader {
 public:
  explicit WordReader(const std::vector<std::string>& words) : words_(words) {}

  std::string text() {
    is_right_ = is_right_ && at_ < words_.size();
    return is_right_ ? words_[at_++] : std::string();
  }
  int number() {
    const std::vector<int> all = numbers();
    is_right_ = is_right_ && all.size() == 1;
    return is_right_ ? all[0] : -1;
  }
  /// "3,7", or nothing.
  std::vector<int> numbers() {
    const std::string word = text();
    std::vector<int> all;
    for (const char *at = word.data(), *end = at + word.size(); is_right_ && at < end; ++at) {
      const auto [stop, error] = std::from_chars(at, end, all.emplace_back());
      is_right_ = error == std::errc() && all.back() >= 0 && (stop == end || *stop == ',');
      at = stop;
    }
    return all;
  }
  std::vector<std::string> texts() {
    const int count = number();
    std::vector<std::string> all;
    for (int i = 0; i < count && is_right_; ++i) all.push_back(text());
    return all;
  }
  std::vector<std::string> rest() {
    is_right_ = is_right_ && at_ < words_.size();
    if (!is_right_) return {};
    return {words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end()};
  }
  bool is_right() const { return is_right_; }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 0;
  bool is_right_ = true;
};

bool keeps_bounds(int socket) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

void append(std::vector<std::string>& words, const std::vector<std::string>& texts) {
  words.push_back(std::to_string(texts.size()));
  words.insert(words.end(), texts.begin(), texts.end());
}

}  // namespace

std::vector<std::string> SupervisorTask::words() const {
  std::vector<std::string> words = {
      std::to_string(socket), std::to_string(adopted), std::to_string(std::max(0, pipe))};
  std::ranges::move(words_of_adopter(), std::back_inserter(words));
  return words;
}

std::vector<std::string> SupervisorTask::words_of_adopter() const {
  std::string all_inherited;
  for (int descriptor : inherited)
    all_inherited += (all_inherited.empty() ? "" : ",") + std::to_string(descriptor);
  std::vector<std::string> words = {all_inherited};
  append(words, folders);
  append(words, sandbox.folders);
  words.push_back(sandbox.state);
  words.push_back(sandbox.in_user_namespace ? "1" : "0");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

SupervisorTask SupervisorTask::of(const std::vector<std::string>& words) {
  WordReader reader(words);
  SupervisorTask task;
  task.socket = reader.number();
  task.adopted = reader.number();
  task.pipe = reader.number();
  task.inherited = reader.numbers();
  task.folders = reader.texts();
  task.sandbox.folders = reader.texts();
  task.sandbox.state = reader.text();
  task.sandbox.in_user_namespace = reader.number() == 1;
  task.command = reader.rest();
  bool is_right = reader.is_right() && task.socket > STDERR_FILENO && keeps_bounds(task.socket);
  is_right = is_right && (task.adopted == 0 || task.pipe > STDERR_FILENO);
  for (int descriptor : task.inherited) is_right = is_right && descriptor > STDERR_FILENO;
  if (!is_right)
    throw UserError("'ridge supervise' is what ridge starts for itself",
                    "see 'ridge doctor --help' for what watches a program");
  return task;
}

}  // namespace ridge::attach
