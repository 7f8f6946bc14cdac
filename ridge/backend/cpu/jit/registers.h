// Which value lies in which register while straight-line code is written. Who must leave is the
// value that is read last again (Belady, "A study of replacement algorithms", 1966).
#pragma once

#include <vector>

namespace ridge::cpu::jit {

/// The registers of one kind.
class Registers {
 public:
  static constexpr int kNobody = -1;

  explicit Registers(int count) : holder_(static_cast<size_t>(count), kNobody) {}

  int count() const { return static_cast<int>(holder_.size()); }
  int holder(int reg) const { return holder_[static_cast<size_t>(reg)]; }
  void give(int reg, int value) { holder_[static_cast<size_t>(reg)] = value; }
  void free(int reg) { give(reg, kNobody); }

  void pin(int reg) { pinned_ |= 1u << reg; }
  void unpin_all() { pinned_ = 0; }

  /// A free register, or the one whose value `next_read` says is read last; pinned ones are kept.
  template <typename NextRead>
  int choose(NextRead next_read) const {
    int best = kNobody, farthest = -1;
    for (int reg = 0; reg < count(); ++reg) {
      if ((pinned_ >> reg & 1u) != 0) continue;
      if (holder(reg) == kNobody) return reg;
      const int next = next_read(holder(reg));
      if (next > farthest) farthest = next, best = reg;
    }
    return best;
  }

 private:
  std::vector<int> holder_;
  unsigned pinned_ = 0;
};

}  // namespace ridge::cpu::jit
