#include "ridge/train/tensorboard.h"

#include <cmath>
#include <cstring>
#include <string_view>
#include <system_error>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/io/crc32c.h"
#include "ridge/train/metrics.h"

namespace ridge {
namespace {

// Protocol buffer wire format into memory on the stack. Numbers of fields are those of
// tensorflow/core/util/event.proto and framework/summary.proto.
class Message {
 public:
  void integer(uint32_t field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void number(uint32_t field, double value) {
    tag(field, 1);
    raw(&value, sizeof value);
  }
  void number(uint32_t field, float value) {
    tag(field, 5);
    raw(&value, sizeof value);
  }
  void bytes(uint32_t field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    raw(value.data(), value.size());
  }
  std::string_view text() const { return {data_, size_}; }

 private:
  void tag(uint32_t field, uint32_t wire_type) { varint(field << 3 | wire_type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) put(static_cast<char>(value | 0x80));
    put(static_cast<char>(value));
  }
  void raw(const void* from, size_t count) {
    check_internal(count <= sizeof data_ - size_, "[TensorBoard] a message of {} bytes", count);
    std::memcpy(data_ + size_, from, count);
    size_ += count;
  }
  void put(char c) { raw(&c, 1); }

  char data_[512];
  size_t size_ = 0;
};

Message event_at(int64_t step) {
  Message event;
  event.number(1, static_cast<double>(wall_ns()) * 1e-9);
  if (step != 0) event.integer(2, step);
  return event;
}

struct Summary {
  Message message;
  void add_numbers(const auto& report) {
    visit_numbers(report, [this](const char*, const char* tag, auto value) {
      add(tag, static_cast<double>(value));
    });
  }
  // A value that is not finite cannot be drawn.
  void add(std::string_view tag, double value) {
    if (!std::isfinite(value)) return;
    Message scalar;
    scalar.bytes(1, tag);
    scalar.number(2, static_cast<float>(value));
    message.bytes(1, scalar.text());
  }
};

// A record: length, its checksum, data, their checksum, all little endian.
void append_record(AppendFile& file, std::string_view data) {
  char record[600];
  const uint64_t length = data.size();
  check_internal(length + 16 <= sizeof record, "[TensorBoard] a record of {} bytes", length);
  std::memcpy(record, &length, 8);
  const uint32_t of_length = masked_crc32c(as_bytes({record, 8}));
  std::memcpy(record + 8, &of_length, 4);
  std::memcpy(record + 12, data.data(), length);
  const uint32_t of_data = masked_crc32c(as_bytes(data));
  std::memcpy(record + 12 + length, &of_data, 4);
  file.append(as_bytes({record, length + 16}));
}

void append_summary(AppendFile& file, int64_t step, const Summary& summary) {
  Message event = event_at(step);
  event.bytes(5, summary.message.text());
  append_record(file, event.text());
}

std::filesystem::path new_file(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, "cannot make the folder '{}': {}", folder.string(), error.message());
  // Seconds first: TensorBoard reads the files of a folder in the order of their names.
  return folder /
         fmt::format("events.out.tfevents.{:010}.{}", wall_ns() / 1000000000, unique_suffix());
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, int64_t last_step)
    : file_(new_file(folder), 0) {
  Message version = event_at(0);
  version.bytes(3, "brain.Event:2");
  append_record(file_, version.text());
  if (last_step == 0) return;
  Message start;
  start.integer(1, 1);  // SessionLog.START: later steps of earlier files do not count
  Message session = event_at(last_step + 1);
  session.bytes(7, start.text());
  append_record(file_, session.text());
}

void TensorBoardWriter::write(const StepReport& report) {
  Summary summary;
  summary.add_numbers(report);
  if (report.gpu != nullptr) summary.add_numbers(*report.gpu);
  append_summary(file_, report.step, summary);
}

void TensorBoardWriter::write(const EvalReport& report) {
  Summary summary;
  summary.add_numbers(report);
  append_summary(file_, report.step, summary);
}

}  // namespace ridge
