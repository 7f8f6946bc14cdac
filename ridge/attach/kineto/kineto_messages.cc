#include "ridge/attach/kineto/kineto_messages.h"

#include <fmt/format.h>

#include <cstring>

namespace ridge::attach {
namespace {

// A message: u64 size of the payload, 32 bytes of type that end in a NUL, the payload. Both ends
// are one machine, so numbers are in its order.
constexpr size_t kTypeBytes = 32, kHeadBytes = sizeof(uint64_t) + kTypeBytes;
constexpr std::string_view kRegister = "ctxt", kPoll = "req";
// Bit of a poll that asks for activities; the other kind of configuration is counters.
constexpr int32_t kActivities = 2;

template <typename T>
T number_at(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

std::string_view type_of(std::span<const std::byte> datagram) {
  const auto* text = reinterpret_cast<const char*>(datagram.data() + sizeof(uint64_t));
  return {text, ::strnlen(text, kTypeBytes)};
}

// i32 device, i32 pid, i64 job.
std::optional<KinetoMessage> parse_registration(std::span<const std::byte> payload) {
  if (payload.size() < 16) return std::nullopt;
  KinetoMessage message{.kind = KinetoMessage::Kind::kRegister};
  message.pids = {number_at<int32_t>(payload, 4)};
  message.job = number_at<int64_t>(payload, 8);
  return message;
}

// i32 kinds, i32 count, i64 job, count x i32 pid.
std::optional<KinetoMessage> parse_poll(std::span<const std::byte> payload) {
  if (payload.size() < 16) return std::nullopt;
  KinetoMessage message{.kind = KinetoMessage::Kind::kPoll};
  message.is_free = (number_at<int32_t>(payload, 0) & kActivities) != 0;
  const int64_t count = number_at<int32_t>(payload, 4);
  const auto most = static_cast<int64_t>((payload.size() - 16) / sizeof(int32_t));
  if (count < 1 || count > most) return std::nullopt;
  message.job = number_at<int64_t>(payload, 8);
  for (int64_t i = 0; i < count; ++i)
    message.pids.push_back(
        number_at<int32_t>(payload, 16 + static_cast<size_t>(i) * sizeof(int32_t)));
  return message;
}

std::string answer(std::string_view type, std::string_view payload) {
  std::string bytes(kHeadBytes, '\0');
  const uint64_t size = payload.size();
  std::memcpy(bytes.data(), &size, sizeof(size));
  std::memcpy(bytes.data() + sizeof(size), type.data(), type.size());
  return bytes.append(payload);
}

}  // namespace

std::optional<KinetoMessage> parse_kineto_message(std::span<const std::byte> datagram) {
  if (datagram.size() < kHeadBytes || datagram.size() > kLongestKinetoMessage) return std::nullopt;
  const auto payload = datagram.subspan(kHeadBytes);
  if (number_at<uint64_t>(datagram, 0) != payload.size()) return std::nullopt;
  const std::string_view type = type_of(datagram);
  if (type == kRegister) return parse_registration(payload);
  if (type == kPoll) return parse_poll(payload);
  return std::nullopt;
}

std::string kineto_count_answer(int32_t programs) {
  char count[sizeof(programs)];
  std::memcpy(count, &programs, sizeof(programs));
  return answer(kRegister, {count, sizeof(count)});
}

std::string kineto_config_answer(std::string_view config) { return answer(kPoll, config); }

std::string kineto_config(const KinetoRecording& recording) {
  // The length counts where the program counts no steps, too: libkineto then goes by time.
  std::string text = fmt::format(
      "ACTIVITIES_LOG_FILE={}\n"
      "ACTIVITIES_WARMUP_PERIOD_SECS={}\n"
      "ACTIVITIES_DURATION_MSECS={}\n"
      "PROFILE_REPORT_INPUT_SHAPES=true\n",
      recording.log_file,
      recording.warm_up_seconds,
      recording.duration_ms);
  if (recording.iterations > 0)
    text += fmt::format(
        "PROFILE_START_ITERATION=0\n"
        "ACTIVITIES_WARMUP_ITERATIONS=1\n"
        "ACTIVITIES_ITERATIONS={}\n",
        recording.iterations);
  return text;
}

}  // namespace ridge::attach
