#include "ridge/backend/cuda/driver/device.h"

#include <array>
#include <atomic>
#include <cstdlib>

#include "ridge/base/html/markup.h"

namespace ridge::cuda {
namespace {

constexpr int kLeastMajor = 8;  // the first with bf16 and asynchronous copies into shared memory

std::string visible_devices() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return {};
  return fmt::format(" (CUDA_VISIBLE_DEVICES is '{}')", shortened(visible, 60));
}

// CUDA shows a program no more than one MIG slice, however many the variable names.
bool sees_slice() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && std::string_view(visible).starts_with("MIG-");
}

// Which device this thread made current last; 0: none of ours.
thread_local uint64_t current_device = 0;

uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

std::string uuid_text(const DeviceUuid& uuid, bool is_slice) {
  std::string text = is_slice ? "MIG" : "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

}  // namespace

Device::Device(DriverRef driver, int number) : driver_(std::move(driver)), serial_(next_serial()) {
  read_facts(number);
  driver_->check(driver_->primary_ctx_retain(&context_, handle_), "cuda:{}", number);
  try {
    make_current();
  } catch (...) {
    static_cast<void>(driver_->primary_ctx_release(handle_));
    throw;
  }
}

Device::~Device() { static_cast<void>(driver_->primary_ctx_release(handle_)); }

void Device::read_facts(int number) {
  const Driver& driver = *driver_;
  int count = 0;
  driver.check(driver.device_get_count(&count));
  if (number < 0 || number >= count)
    throw UserError(
        fmt::format(
            "there is no GPU cuda:{}: the driver shows {}{}", number, count, visible_devices()),
        count == 0     ? no_device_fix()
        : sees_slice() ? "give cuda:0: a program sees one MIG slice"
        : count == 1   ? "give cuda:0"
                       : fmt::format("give cuda:0 to cuda:{}", count - 1));
  driver.check(driver.device_get(&handle_, number), "cuda:{}", number);
  facts_.number = number;
  std::array<char, 256> name{};
  driver.check(driver.device_get_name(name.data(), static_cast<int>(name.size()) - 1, handle_),
               "cuda:{}",
               number);
  facts_.name = plain_line(name.data());
  DeviceUuid uuid{};
  driver.check(driver.device_get_uuid(&uuid, handle_), "cuda:{}", number);
  facts_.uuid = uuid_text(uuid, facts_.name.find(" MIG ") != std::string::npos);
  size_t bytes = 0;
  driver.check(driver.device_total_mem(&bytes, handle_), "cuda:{}", number);
  facts_.memory_bytes = static_cast<int64_t>(bytes);
  const auto ask = [&](DeviceAttribute attribute) {
    int value = 0;
    driver.check(driver.device_get_attribute(&value, attribute, handle_),
                 "attribute {} of cuda:{}",
                 static_cast<int>(attribute),
                 number);
    return value;
  };
  facts_.copy_engines = ask(DeviceAttribute::kCopyEngines);
  facts_.l2_bytes = ask(DeviceAttribute::kL2Bytes);
  facts_.limits = {
      .major = ask(DeviceAttribute::kMajor),
      .minor = ask(DeviceAttribute::kMinor),
      .multiprocessors = ask(DeviceAttribute::kMultiprocessors),
      .shared_per_block = ask(DeviceAttribute::kSharedPerBlock),
      .shared_per_multiprocessor = ask(DeviceAttribute::kSharedPerMultiprocessor),
      .shared_reserved = ask(DeviceAttribute::kSharedReserved),
  };
  if (facts_.limits.major < kLeastMajor)
    throw UserError(fmt::format("cuda:{} is a {} of compute capability {}.{}, Ridge needs {}.0",
                                number,
                                facts_.name,
                                facts_.limits.major,
                                facts_.limits.minor,
                                kLeastMajor),
                    "take a GPU of 2020 or later (A100, RTX 30 and what followed)");
}

void Device::make_current() const {
  current_device = 0;
  driver_->check(driver_->ctx_set_current(context_), "cuda:{}", facts_.number);
  current_device = serial_;
}

void Device::ensure_current() const {
  if (current_device != serial_) make_current();
}

void Device::make_current_quietly() const noexcept {
  current_device = driver_->ctx_set_current(context_).ok() ? serial_ : 0;
}

void Device::wait_quietly() const noexcept { static_cast<void>(driver_->ctx_synchronize()); }

DeviceMemoryUse Device::memory_use() const {
  DeviceMemoryUse use;
  driver_->check(driver_->mem_get_info(&use.free, &use.total), "cuda:{}", facts_.number);
  return use;
}

DeviceRef open_device(int number) {
  return std::make_shared<const Device>(std::make_shared<const Driver>(Driver::default_name()),
                                        number);
}

}  // namespace ridge::cuda
