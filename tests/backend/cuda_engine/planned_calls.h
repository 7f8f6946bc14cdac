// The calls of the driver that the plan of a program asks for, written down from the plan and the
// contract of Program alone: which streams, copies, events and launches, in which order.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ridge/backend/cuda/print_kernel.h"
#include "ridge/run/program.h"
#include "tests/backend/cuda/fake_driver/fake_cuda.h"

namespace ridge::test {

/// Who calls the program: PlannedCalls, or the owner of it, who tells PlannedCalls.
enum class Caller { kPlannedCalls, kOwner };

/// A mirror of a program: with each call of the host's, lines() grow by what the driver's log must
/// grow by. What no plan says, the name of a stream or an event, stands as
/// "$name$" and is whatever difference() first finds there.
class PlannedCalls {
 public:
  /// Before anything is written to the program or run.
  PlannedCalls(Program& program, const FakeCuda& fake, Capture capture, Caller caller);

  // As Program's. Memory of the host is page-locked.
  void write(DataSlot slot, const void* host);
  void write_scalars(DataSlot slot, const void* host = nullptr);
  void write_rows(DataSlot slot, const void* host, size_t row_bytes, size_t row_step);
  /// The first time one by one, the second while it is recorded, from then on what was recorded.
  void run(size_t entry);
  /// `to` as the log calls it; `host`, where PlannedCalls is the caller.
  void read(DataSlot slot, const std::string& to, void* host = nullptr);
  void read(const PlanSlot& state, const std::string& to, void* host = nullptr);
  void synchronize();

  const std::vector<std::string>& lines() const { return lines_; }
  /// Forgets the lines, and keeps who is who.
  void clear() { lines_.clear(); }
  /// Empty where `log` is these lines; else the first that is not, with those before it.
  std::string difference(const std::vector<std::string>& log);
  /// Lines of kernels, copies and fills among the launches of the entry.
  size_t nodes(size_t entry) const { return launches_.at(entry).size(); }

 private:
  struct Piece {
    std::string to;
    int64_t at, staging, bytes;
  };
  void add(std::string line) { lines_.push_back(std::move(line)); }
  std::string place(Region region, int64_t offset) const;
  std::string place(const Place& where) const { return place(where.region, where.offset); }
  void stage(DataSlot slot, const std::string& from);
  void take();
  void add_launches(size_t entry);
  void add_step(const Node& node, const PlanStep& step, const std::string& id);
  void add_printed(const cuda::Printing& printing,
                   const std::vector<std::string>& inputs,
                   const std::vector<std::string>& outputs,
                   const std::string& workspace,
                   int64_t workspace_at);
  void add_product(const Node& node, const PlanStep& step);
  void add_joint_product(const Node& node, const PlanStep& step);
  void read_from(const std::string& from, size_t bytes, const std::string& to);
  bool matches(const std::string& expected, const std::string& line);

  Program& program_;
  const FakeCuda& fake_;
  bool captures_, calls_;
  std::vector<int64_t> runs_;  // of each entry
  std::string state_, arena_;  // names of their memory
  const void* arena_base_ = nullptr;
  size_t faults_ = 0;                               // kernels so far that check indices
  std::vector<std::vector<std::string>> launches_;  // by entry
  std::vector<std::string> lines_;
  int slot_ = 0;               // that is filled
  std::vector<Piece> pieces_;  // that are in it
  size_t scalar_bytes_ = 0;
  std::string copied_before_;  // the event of the run before; empty: it took nothing
  bool is_reading_ = false, has_packed_ = false;
  std::map<std::string, std::string> bound_, named_;
};

}  // namespace ridge::test
