#include "ridge/cli/common/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "ridge/base/clock.h"
#include "ridge/cli/common/output.h"

namespace ridge {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;
constexpr int64_t kFirstLineNs = 5'000'000'000;
constexpr int64_t kLongestSilenceNs = 600'000'000'000;

// Text on the stack; what does not fit is cut off.
class Text {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    const size_t room = sizeof data_ - size_;
    const auto result = fmt::format_to_n(data_ + size_, room, format, std::forward<Args>(args)...);
    size_ += std::min(result.size, room);
  }
  std::string_view view() const { return {data_, size_}; }

 private:
  char data_[512];
  size_t size_ = 0;
};

int columns_of(std::FILE* out) {
  constexpr int kUsual = 80;
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

}  // namespace

ProgressStyle style_for(std::FILE* out) {
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::strcmp(terminal, "dumb") == 0;
  return {.bar = !dumb && ::isatty(::fileno(out)) == 1};
}

ProgressDisplay::ProgressDisplay(std::FILE* out) : ProgressDisplay(out, style_for(out)) {}

ProgressDisplay::ProgressDisplay(std::FILE* out, ProgressStyle style) : out_(out), style_(style) {
  if (style_.clock == nullptr) style_.clock = now_ns;
}

void ProgressDisplay::on_start(const StartReport& report) {
  first_step_ = report.first_step;
  start_ns_ = shown_ns_ = style_.clock();
  Text text;
  text.add("training {} on {}: {} parameters, {} steps",
           report.model,
           report.device,
           grouped(report.parameters),
           grouped(report.total_steps));
  if (first_step_ > 0) text.add(" of which {} are done", grouped(first_step_));
  if (report.planned_bytes > 0) text.add(", {} planned", bytes_text(report.planned_bytes));
  print_line(text.view());
}

void ProgressDisplay::on_step(const StepReport& report) {
  const int64_t now = style_.clock();
  const int64_t elapsed = now - start_ns_;
  const int64_t silence = std::clamp(elapsed / 10, kFirstLineNs, kLongestSilenceNs);
  const bool last = report.step >= report.total_steps;
  if (!last && now - shown_ns_ < (style_.bar ? kRedrawNs : silence)) return;
  shown_ns_ = now;
  // Evaluations and checkpoints of this run are in the time gone by, and will be in what is left.
  const auto done = static_cast<double>(std::max<int64_t>(report.step - first_step_, 1));
  const auto left = static_cast<double>(std::max<int64_t>(report.total_steps - report.step, 0));
  const double seconds_left = static_cast<double>(elapsed) * 1e-9 / done * left;
  style_.bar ? draw_bar(report, seconds_left) : print_step(report, seconds_left);
}

void ProgressDisplay::draw_bar(const StepReport& report, double seconds_left) {
  constexpr int kLongestBar = 40, kShortestBar = 5;
  const double share = std::clamp(static_cast<double>(report.step) /
                                      static_cast<double>(std::max<int64_t>(report.total_steps, 1)),
                                  0.0,
                                  1.0);
  Text head, tail;
  head.add("{:3.0f}% ", std::floor(share * 100));
  tail.add(" {}/{}  loss {:#.4g}  {} samples/s  {} left",
           grouped(report.step),
           grouped(report.total_steps),
           report.loss,
           scaled(report.samples_per_s),
           duration_text(seconds_left));
  // The last column stays free: some terminals break the line there.
  const int columns = std::max((style_.columns != 0 ? style_.columns : columns_of(out_)) - 1, 0);
  const int used = static_cast<int>(head.view().size() + tail.view().size()) + 2;
  const int width = std::min(columns - used, kLongestBar);
  Text line;
  line.add("{}", head.view());
  if (width >= kShortestBar) {
    const int full = static_cast<int>(share * width);
    line.add("[{:=>{}}{:>{}}]", "", full, "", width - full);
  }
  line.add("{}", tail.view());
  Text drawn;
  drawn.add("{}{}", kClearLine, line.view().substr(0, static_cast<size_t>(columns)));
  put(drawn.view());
  bar_shown_ = true;
}

void ProgressDisplay::print_step(const StepReport& report, double seconds_left) {
  Text text;
  text.add("step {}/{}, epoch {:.2f}, loss {:#.4g}, lr {:.3g}, {} samples/s",
           grouped(report.step),
           grouped(report.total_steps),
           report.epoch,
           report.loss,
           report.lr,
           scaled(report.samples_per_s));
  if (report.step < report.total_steps) text.add(", {} left", duration_text(seconds_left));
  print_line(text.view());
}

void ProgressDisplay::on_eval(const EvalReport& report) {
  Text text;
  text.add("step {}: evaluation loss {:#.4g}", grouped(report.step), report.loss);
  if (!std::isnan(report.accuracy)) text.add(", accuracy {:.2f} %", 100 * report.accuracy);
  text.add(", {} sample{} in {}",
           grouped(report.samples),
           report.samples == 1 ? "" : "s",
           duration_text(report.seconds));
  print_line(text.view());
}

void ProgressDisplay::on_checkpoint(std::string_view path, int64_t step) {
  print_line(fmt::format("step {}: saved {}", grouped(step), path));
}

void ProgressDisplay::on_message(std::string_view text) { print_line(text); }

void ProgressDisplay::clear_bar() {
  if (bar_shown_) put(kClearLine);
  bar_shown_ = false;
}

void ProgressDisplay::print_line(std::string_view text) {
  clear_bar();
  put(text);
  put("\n");
}

void ProgressDisplay::put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

}  // namespace ridge
