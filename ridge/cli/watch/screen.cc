#include "ridge/cli/watch/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "ridge/base/utf8.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/watch/sections.h"

namespace ridge {
namespace {

using attach::WatchedProcess;
using attach::WatchState;

struct ScreenLine {
  std::string text;
  int rank;  ///< The greatest goes first where there are too many lines.
};

enum Rank { kFirst = 0, kHelp = 10, kContinued = 20, kTable = 50, kBlank = 60 };

std::string toned(std::string_view text, Tone tone, bool color) {
  constexpr std::string_view kCodes[] = {"", "\x1b[1m", "\x1b[1;33m", "\x1b[2m"};
  if (!color || tone == Tone::kPlain || text.empty()) return std::string(text);
  return fmt::format("{}{}\x1b[0m", kCodes[static_cast<size_t>(tone)], text);
}

// A piece of a line, and the cell at which it begins.
struct Placed {
  size_t at;
  std::string text;
  Tone tone;
};
using Placing = std::vector<Placed>;

// For terminals that have no other characters.
std::string in_ascii(std::string_view text) {
  std::string plain;
  for (size_t length = 1; !text.empty(); text.remove_prefix(length)) {
    length = std::max<size_t>(1, utf8_length(text));
    if (length == 1)
      plain += text[0];
    else
      plain += text.substr(0, length) == "\u2026" ? '~' : '?';
  }
  return plain;
}

// A text that is too long for any line, broken at its spaces.
std::vector<std::string> wrapped(std::string_view text, size_t cells) {
  std::vector<std::string> pieces;
  std::string piece;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!piece.empty() && cells_of(piece) + 1 + cells_of(word) > cells)
      pieces.push_back(std::exchange(piece, {}));
    if (!piece.empty()) piece += ' ';
    piece += fitting(word, cells);
  }
  if (!piece.empty()) pieces.push_back(std::move(piece));
  return pieces;
}

// Puts sections into lines: what does not fit beside the chart, or in a line, goes on in the next.
class Layout {
 public:
  explicit Layout(const ScreenStyle& style)
      : style_(style),
        width_(static_cast<size_t>(std::max(style.columns - 1, 1))),
        label_(width_ < 40 ? 8 : 11) {}

  void add(const WatchSection& section) {
    constexpr size_t kNarrowest = 59, kWidestChart = 60;
    const bool has_chart = section.chart != nullptr && width_ >= kNarrowest;
    const size_t chart = has_chart ? std::min(width_ / 4, kWidestChart) : 0;
    std::vector<Placing> lines = placed(section, has_chart ? width_ - chart - 2 : width_);
    if (has_chart)
      lines[0].push_back({width_ - chart,
                          sparkline(*section.chart, chart, section.whole, style_.unicode),
                          Tone::kPlain});
    for (size_t i = 0; i < lines.size(); ++i)
      lines_.push_back({rendered(lines[i]), i == 0 ? section.rank : kContinued + section.rank});
  }

  void add_placed(const Placing& line, int rank) { lines_.push_back({rendered(line), rank}); }
  size_t size() const { return lines_.size(); }
  size_t width() const { return width_; }

  /// The `rows` that matter most, in their order.
  std::vector<std::string> take(size_t rows) {
    std::vector<size_t> order(lines_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return lines_[a].rank < lines_[b].rank;
    });
    order.resize(std::min(order.size(), rows));
    std::sort(order.begin(), order.end());
    std::vector<std::string> taken;
    for (size_t line : order) taken.push_back(std::move(lines_[line].text));
    return taken;
  }

 private:
  // `room`: the cells of the first line that the chart leaves.
  std::vector<Placing> placed(const WatchSection& section, size_t room) const {
    constexpr size_t kBetween = 3;
    std::vector<Placing> lines = {{{0, fitting(section.label, label_ - 1), Tone::kDim}}};
    size_t at = label_;
    for (const WatchField& field : section.fields) {
      const std::string safe = fitting(field.text, field.text.size());
      const size_t widest = width_ > label_ ? width_ - label_ : 1;
      for (std::string& piece : wrapped_if_needed(safe, widest)) {
        const size_t cells = cells_of(piece);
        if (at + cells > (lines.size() == 1 ? room : width_)) {
          lines.emplace_back();
          at = label_;
        }
        lines.back().push_back({at, std::move(piece), field.tone});
        at += cells + kBetween;
      }
    }
    return lines;
  }

  static std::vector<std::string> wrapped_if_needed(const std::string& text, size_t cells) {
    if (cells_of(text) <= cells) return {text};
    return wrapped(text, cells);
  }

  // In order of their places; what would lie beyond the width is cut off.
  std::string rendered(const Placing& line) const {
    std::string text;
    size_t used = 0;
    for (const Placed& piece : line) {
      if (piece.at >= width_ || piece.text.empty()) continue;
      if (piece.at > used) text += std::string(piece.at - used, ' ');
      std::string shown = fitting(piece.text, width_ - std::max(used, piece.at));
      if (!style_.unicode) shown = in_ascii(shown);
      used = std::max(used, piece.at) + cells_of(shown);
      text += toned(shown, piece.tone, style_.color);
    }
    return text;
  }

  const ScreenStyle& style_;
  size_t width_, label_;
  std::vector<ScreenLine> lines_;
};

void add_head(Layout& layout, const WatchState& state) {
  const std::string elapsed =
      state.is_over ? "ended after " + duration_text(state.elapsed) : duration_text(state.elapsed);
  const std::string name = fmt::format("{} ({})", state.program, state.pid);
  constexpr size_t kName = 13;
  const size_t end = layout.width();
  const size_t right = end > elapsed.size() ? end - elapsed.size() : 0;
  if (right < kName + 8) {
    layout.add_placed({{0, name, Tone::kStrong}}, kFirst);
    return layout.add_placed({{0, elapsed, Tone::kPlain}}, kContinued - 1);
  }
  layout.add_placed({{0, "ridge watch", Tone::kDim},
                     {kName, fitting(name, right - kName - 2), Tone::kStrong},
                     {right, elapsed, Tone::kPlain}},
                    kFirst);
}

void add_processes(Layout& layout, const WatchState& state, size_t rows) {
  constexpr size_t kHead = 2, kPid = 10, kCpu = 20, kMemory = 33, kThreads = 43, kName = 46;
  const size_t room = rows > layout.size() + kHead ? rows - layout.size() - kHead : 0;
  const size_t count = std::min(room, state.processes.size());
  if (count == 0 || layout.width() < kName + 8) return;
  const auto right = [](size_t end, const std::string& text) {
    return Placed{end - std::min(end, cells_of(text)), text, Tone::kPlain};
  };
  Placing head = {right(kPid, "process"),
                  right(kCpu, "CPUs"),
                  right(kMemory, "resident"),
                  right(kThreads, "threads"),
                  {kName, "name", Tone::kPlain}};
  for (Placed& piece : head) piece.tone = Tone::kDim;
  layout.add_placed({}, kBlank);
  layout.add_placed(head, kTable);
  for (size_t i = 0; i < count; ++i) {
    const WatchedProcess& process = state.processes[i];
    layout.add_placed({right(kPid, fmt::format("{}", process.pid)),
                       right(kCpu, fmt::format("{:.2f}", process.cpus)),
                       right(kMemory, bytes_text(process.rss_bytes)),
                       right(kThreads, grouped(process.threads)),
                       {kName, process.name, Tone::kPlain}},
                      kTable + 1);
  }
}

}  // namespace

std::vector<std::string> watch_screen(const WatchState& state, const ScreenStyle& style) {
  const size_t rows = static_cast<size_t>(std::max(style.rows, 1));
  const bool has_help = !style.help.empty();
  Layout layout(style);
  add_head(layout, state);
  layout.add_placed({}, kBlank);
  for (const WatchSection& section : watch_sections(state)) layout.add(section);
  add_processes(layout, state, rows - std::min<size_t>(rows, has_help ? 2 : 0));
  if (has_help) {
    layout.add_placed({}, kBlank);
    layout.add_placed({{0, style.help, Tone::kDim}}, kHelp);
  }
  return layout.take(rows);
}

}  // namespace ridge
