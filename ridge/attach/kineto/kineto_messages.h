// The datagrams of libkineto's on-demand protocol, and the text of a configuration that it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::attach {

/// A longer datagram is none of libkineto's.
inline constexpr size_t kLongestKinetoMessage = 65536;

/// A message of a program. All of it is the sender's word: only the socket's credentials say who it
/// is.
struct KinetoMessage {
  enum class Kind : uint8_t {
    kRegister,  ///< "ctxt": here I am; wants a count as the answer.
    kPoll,      ///< "req": shall I record? Wants a configuration, or nothing, as the answer.
  } kind{};
  int64_t job = 0;
  std::vector<int32_t> pids{};  ///< Its number by its own namespace; of a poll its ancestors', too.
  bool is_free = false;         ///< A poll's: it would start a recording, for none is under way.
  bool operator==(const KinetoMessage&) const = default;
};

/// Empty: not a message of libkineto's, or a broken one. Never throws, whatever it is given.
std::optional<KinetoMessage> parse_kineto_message(std::span<const std::byte> datagram);

/// The answers: to a registration how many programs there are, to a poll a configuration.
std::string kineto_count_answer(int32_t programs);
std::string kineto_config_answer(std::string_view config);

struct KinetoRecording {
  std::string log_file{};  ///< "FOLDER/NAME.json"; libkineto writes FOLDER/NAME_PID.json.
  int64_t warm_up_seconds = 2, duration_ms = 5000;
  int64_t iterations = 0;  ///< Above 0: so many steps, where the program counts them.
};

/// The configuration that asks for it, a setting a line.
std::string kineto_config(const KinetoRecording& recording);

}  // namespace ridge::attach
