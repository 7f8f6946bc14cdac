#include "ridge/train/metrics.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr std::string_view kLineStart = "{\"step\":";

// One line in the making, on the stack.
class Line {
 public:
  void number(std::string_view name, double value) {
    start(name);
    if (!std::isfinite(value)) return put("null");
    const char* before = at_;
    at_ = fmt::format_to(at_, "{}", value);
    const std::string_view digits(before, static_cast<size_t>(at_ - before));
    if (digits.find_first_of(".e") == std::string_view::npos) put(".0");
  }
  void numbers(const auto& report) {
    visit_numbers(report, [this](const char* name, const char*, auto value) {
      if constexpr (std::is_integral_v<decltype(value)>)
        integer(name, value);
      else
        number(name, value);
    });
  }
  void integer(std::string_view name, int64_t value) {
    start(name);
    at_ = fmt::format_to(at_, "{}", value);
  }
  /// Words of our own: nothing in them needs to be escaped.
  void words(std::string_view name, std::string_view value) {
    start(name);
    at_ = fmt::format_to(at_, "\"{}\"", value.substr(0, kMostWords));
  }
  Bytes finish() {
    put("}\n");
    return as_bytes({text_, static_cast<size_t>(at_ - text_)});
  }

 private:
  void start(std::string_view name) {
    at_ = fmt::format_to(at_, "{}\"{}\":", at_ == text_ ? '{' : ',', name);
  }
  void put(std::string_view text) { at_ = fmt::format_to(at_, "{}", text); }

  // 14 numbers of at most 24 characters, with names of at most 16, and the words: below 900.
  static constexpr size_t kMostWords = 250;
  char text_[1024];
  char* at_ = text_;
};

// Bytes of the lines up to `last_step`. A line that a crash cut short counts as not there.
size_t bytes_to_keep(const std::filesystem::path& path, int64_t last_step) {
  if (!std::filesystem::is_regular_file(path)) return 0;
  const MappedFile file(path);
  const std::string_view text = as_text(file.bytes());
  size_t keep = 0;
  for (int64_t line = 1; keep < text.size(); ++line) {
    const size_t end = text.find('\n', keep);
    std::string_view rest = text.substr(keep, end - keep);
    const bool cut = end == std::string_view::npos;
    if (cut && kLineStart.starts_with(rest.substr(0, kLineStart.size()))) return keep;
    int64_t step = 0;
    bool ours = rest.starts_with(kLineStart);
    if (ours) {
      rest.remove_prefix(kLineStart.size());
      const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), step);
      ours = error == std::errc() && stop != rest.data() + rest.size() && *stop == ',';
    }
    if (!ours && !cut)
      throw UserError(fmt::format("{}:{}: this is no line of metrics", path.string(), line),
                      "move the file away, or choose another folder with train.out");
    if (cut || step > last_step) return keep;
    keep = end + 1;
  }
  return keep;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::filesystem::path& path, int64_t last_step)
    : file_(path, bytes_to_keep(path, last_step)) {}

void MetricsWriter::write(const StepReport& report) {
  Line line;
  line.integer("step", report.step);
  line.number("epoch", report.epoch);
  line.numbers(report);
  if (report.loss_scale > 0) line.integer("skipped_steps", report.skipped_steps);
  if (report.gpu != nullptr) {
    line.numbers(*report.gpu);
    line.words("gpu_held_by", report.gpu->held_by);
  }
  file_.append(line.finish());
}

void MetricsWriter::write(const EvalReport& report) {
  Line line;
  line.integer("step", report.step);
  line.numbers(report);
  line.integer("eval_samples", report.samples);
  line.number("eval_seconds", report.seconds);
  file_.append(line.finish());
}

}  // namespace ridge
