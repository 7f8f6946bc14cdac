#include "ridge/doctor/read/kineto_marks.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <unordered_map>

namespace ridge::doctor {
namespace {

using Close = FunctionRef<void(uint32_t, int64_t)>;

bool is_end(const KinetoMark& mark) { return mark.row == KinetoMark::kEnd; }

/// The open events of one thread. Each call takes the same time however deep they nest.
class OpenMarks {
 public:
  explicit OpenMarks(Close close) : close_(close) {}

  /// All of one time.
  void add(std::span<const KinetoMark> marks) {
    const bool are_named = std::all_of(marks.begin(), marks.end(), [](const KinetoMark& mark) {
      return !is_end(mark) || mark.name != 0;
    });
    if (are_named && marks.size() > 1) return add_unordered(marks);
    for (const KinetoMark& mark : marks)
      if (is_end(mark))
        end(mark);
      else
        begin(mark);
  }
  /// Closes the events that are still open as ones that do not end. Returns the ends that were in
  /// vain.
  int64_t finish() {
    for (const KinetoMark& mark : stack_)
      if (!is_end(mark)) close_(mark.row, -1);
    return in_vain_;
  }

 private:
  void begin(const KinetoMark& mark) {
    by_name_[mark.name].push_back(stack_.size());
    stack_.push_back(mark);
  }
  void end(const KinetoMark& mark) {
    if (!end_of_name(mark) && !end_innermost(mark)) ++in_vain_;
  }
  bool end_of_name(const KinetoMark& mark) {
    const auto open = by_name_.find(mark.name);
    if (mark.name == 0 || open == by_name_.end() || open->second.empty()) return false;
    const size_t at = open->second.back();
    open->second.pop_back();
    take(at, mark.time_ns);
    return true;
  }
  bool end_innermost(const KinetoMark& mark) {
    if (stack_.empty()) return false;
    by_name_[stack_.back().name].pop_back();  // of its name it is the innermost too
    take(stack_.size() - 1, mark.time_ns);
    return true;
  }
  // One that others are open in becomes a gap in the stack, which goes when they do.
  void take(size_t at, int64_t time_ns) {
    close_(stack_[at].row, time_ns - stack_[at].time_ns);
    stack_[at].row = KinetoMark::kEnd;
    while (!stack_.empty() && is_end(stack_.back())) stack_.pop_back();
  }

  void add_unordered(std::span<const KinetoMark> marks) {
    std::unordered_map<uint32_t, int64_t> begun;
    for (const KinetoMark& mark : marks)
      if (!is_end(mark)) ++begun[mark.name];
    std::vector<KinetoMark> strange, later;
    for (const KinetoMark& mark : marks) {
      if (!is_end(mark) || end_of_name(mark)) continue;
      const auto own = begun.find(mark.name);
      const bool began_now = own != begun.end() && own->second-- > 0;
      (began_now ? later : strange).push_back(mark);
    }
    for (const KinetoMark& mark : strange)
      if (!end_innermost(mark)) later.push_back(mark);
    for (const KinetoMark& mark : marks)
      if (!is_end(mark)) begin(mark);
    for (const KinetoMark& mark : later) end(mark);
  }

  Close close_;
  std::vector<KinetoMark> stack_;
  std::unordered_map<uint32_t, std::vector<size_t>> by_name_;  // places in the stack
  int64_t in_vain_ = 0;
};

}  // namespace

int64_t pair_marks(std::vector<KinetoMark> marks, Close close) {
  const auto thread_of = [](const KinetoMark& mark) {
    return std::pair(mark.process, mark.thread);
  };
  std::stable_sort(marks.begin(), marks.end(), [&](const KinetoMark& a, const KinetoMark& b) {
    return std::pair(thread_of(a), a.time_ns) < std::pair(thread_of(b), b.time_ns);
  });
  int64_t in_vain = 0;
  for (auto thread = marks.begin(); thread != marks.end();) {
    const auto next = std::find_if(thread, marks.end(), [&](const KinetoMark& mark) {
      return thread_of(mark) != thread_of(*thread);
    });
    OpenMarks open(close);
    while (thread != next) {
      const auto after = std::find_if(
          thread, next, [&](const KinetoMark& mark) { return mark.time_ns != thread->time_ns; });
      open.add({thread, after});
      thread = after;
    }
    in_vain += open.finish();
  }
  return in_vain;
}

}  // namespace ridge::doctor
