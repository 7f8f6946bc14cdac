// A device that runs beside the host, made of the CPU backend: its streams run their work as late,
// or in as strange an order, as the waits between them allow. A wait that is missing shows in the
// bits. Its memory cannot be touched from outside of queued work: that ends the process.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ridge/backend/backend.h"

namespace ridge::test {

struct LazyOptions {
  enum class Schedule {
    kAtLast,   ///< Work runs when the host waits, and only what it waits for.
    kFavored,  ///< Work of stream `favored` runs as soon as it may, all other at last.
    kRandom,   ///< By `seed`, at each call.
  };
  Schedule schedule = Schedule::kAtLast;
  size_t favored = 0;  ///< By the order in which streams were made, from 0.
  uint64_t seed = 0;
  bool records = false;  ///< Whether record() can be called.
  bool refuses_recordings = false;
  /// No stream waits for events of this number, by the order in which they were made, from 0.
  std::optional<size_t> ignored_event = std::nullopt;
  bool host_ignores_events = false;
  bool stores_16_bits = false;
  int64_t column_multiple = 1;
};

class LazyBackend final : public Backend {
 public:
  explicit LazyBackend(LazyOptions options = {});
  ~LazyBackend() override;

  std::string_view name() const override { return "lazy"; }
  bool stores_16_bits() const override { return options_.stores_16_bits; }
  int64_t column_multiple() const override { return options_.column_multiple; }
  std::vector<Choice> candidates(const Node& node) const override {
    return inner_->candidates(node);
  }
  std::unique_ptr<NodeKernel> instantiate(const Node& node, size_t choice) const override;
  std::vector<PackedOperand> packed_operands(const Node& node, size_t choice) const override {
    std::vector<PackedOperand> operands = inner_->packed_operands(node, choice);
    for (PackedOperand& operand : operands) operand.kernel = nullptr;  // memory is not the host's
    return operands;
  }
  std::unique_ptr<NodeKernel> instantiate_packed(const Node& node, size_t choice) const override;
  void* allocate(size_t bytes) override;
  void deallocate(void* memory) noexcept override;
  void* allocate_host(size_t bytes) override;
  void copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) override;
  void copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) override;
  void copy_on_device(Stream& stream, void* to, const void* from, size_t bytes) override;
  std::unique_ptr<Stream> make_stream() override;
  bool can_record() const override { return options_.records; }
  RecordingResult record(Stream& stream, FunctionRef<void()> queue) override;
  Calibration calibrate() override { return inner_->calibrate(); }

  /// A line a call that queues, waits or allocates, in order.
  const std::vector<std::string>& log() const { return log_; }
  void clear_log() { log_.clear(); }
  size_t events() const { return events_; }
  /// "region+offset", of the allocations in their order: what the log calls an address.
  std::string place(const void* address) const;

  // Work of the backend's own streams, events and kernels.
  struct Work {
    std::function<void()> task;  ///< Null for the rest.
    class LazyEvent* wait = nullptr;
    class LazyEvent* record = nullptr;
    uint64_t ticket = 0;
  };
  class LazyStream;
  void queue(LazyStream& stream, std::function<void()> task, const std::string& line);

 private:
  friend class LazyStream;
  friend class LazyEvent;
  void note(std::string line) { log_.push_back(std::move(line)); }
  void make_progress();
  bool step(LazyStream& stream);
  void reach(LazyEvent& event, uint64_t ticket);
  void drain(LazyStream& stream);
  void run(const std::function<void()>& task);
  void set_access(bool is_open);

  LazyOptions options_;
  std::unique_ptr<Backend> inner_;
  std::unique_ptr<Stream> inline_;
  std::mt19937_64 random_;
  std::vector<LazyStream*> streams_;  ///< Null: gone.
  size_t events_ = 0;
  struct Region {
    std::byte* begin;
    size_t bytes, mapped;
  };
  std::map<size_t, Region> regions_;
  size_t next_region_ = 0;
  std::vector<std::string> log_;
};

}  // namespace ridge::test
