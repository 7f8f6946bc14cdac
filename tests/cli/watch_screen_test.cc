// The screen of `ridge watch`: what has to hold at any size, for any program.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <clocale>
#include <cwchar>
#include <numeric>
#include <random>
#include <regex>

#include "ridge/base/utf8.h"
#include "ridge/cli/watch/screen.h"
#include "ridge/cli/watch/sections.h"
#include "tests/support/watch_inputs.h"

namespace ridge {
namespace {

using attach::WatchInput;
using attach::WatchState;
using test::full_input_at;
using test::input_at;
using test::kHostile;
using test::state_after;

std::string without_color(const std::string& line) {
  static const std::regex color("\x1b\\[[0-9;]*m");
  return std::regex_replace(line, color, "");
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += without_color(line) + "\n";
  return text;
}

// The width by the C library: -1 where anything has no width of its own.
int library_width(const std::string& line) {
  const char* const before = std::setlocale(LC_CTYPE, nullptr);
  const std::string saved = before == nullptr ? "C" : before;
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) return 0;
  std::wstring wide(line.size() + 1, L'\0');
  const size_t size = std::mbstowcs(wide.data(), line.c_str(), wide.size());
  const int width = size == static_cast<size_t>(-1) ? -1 : ::wcswidth(wide.c_str(), size);
  std::setlocale(LC_CTYPE, saved.c_str());
  return width;
}

// Checks the rules that hold for every screen.
void expect_sound(const std::vector<std::string>& lines, const ScreenStyle& style) {
  EXPECT_LE(lines.size(), static_cast<size_t>(style.rows));
  for (const std::string& line : lines) {
    const std::string plain = without_color(line);
    EXPECT_EQ(valid_utf8(plain), plain);
    for (char c : plain) EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7f) << plain;
    const int width = library_width(plain);
    EXPECT_GE(width, 0) << plain;
    EXPECT_LT(width, std::max(style.columns, 2)) << plain;
    if (!style.color) {
      EXPECT_EQ(line, plain);
    }
  }
}

std::string sound_text(const WatchState& state, const ScreenStyle& style) {
  const std::vector<std::string> lines = watch_screen(state, style);
  expect_sound(lines, style);
  return text_of(lines);
}

const std::vector<std::string> kAllFacts = {
    // who, steps
    "train.py (100)",
    "30 s",
    "2.00 steps/s",
    "500 ms a step",
    "59 steps",
    "optimizer",
    // loader
    "25 % of the time waits for data",
    "25 % since the first step",
    "batch 64, 4 workers",
    // processors
    "3.00 of 4 CPUs",
    "threads wait for one",
    "main thread runs",
    "of 4 threads busy",
    "2 processes",
    "held by its quota",
    // devices
    "GPU 0",
    "GPU 1",
    "87 % of the time a kernel runs",
    "12.0 of 140.0 GiB",
    "412 of 700 W",
    "1755 of 1980 MHz",
    "61 C",
    "held by power limit",
    "NVIDIA H200",
    // the rest
    "600.0 MiB resident",
    "cgroup 2.0 of 8.0 GiB",
    "/s read",
    "/s written",
    "974 W",
    "CPU 150 W",
    "487 J a step",
    "3.60 an hour",
    "0.03 so far",
    "0.5 for 1,000 steps",
    "q quits"};

TEST(WatchScreen, AllFactsAreThereAt80By24AndAbove) {
  const WatchState state = state_after(31, full_input_at);
  for (const auto& [columns, rows] : {std::pair{80, 24}, {100, 30}, {200, 50}}) {
    const std::string text =
        sound_text(state, {.columns = columns, .rows = rows, .help = "q quits"});
    for (const std::string& fact : kAllFacts)
      EXPECT_NE(text.find(fact), std::string::npos) << fact << "\n" << text;
  }
}

TEST(WatchScreen, EightDevicesFitIn80By24) {
  const auto eight = [](double at) {
    WatchInput input = full_input_at(at);
    for (int32_t i = 2; i < 8; ++i) input.gpus.push_back(test::gpu_of(i));
    return input;
  };
  const std::string text = sound_text(state_after(31, eight), {.help = "q quits"});
  for (const char* fact :
       {"GPU 0", "GPU 7", "2.00 steps/s", "3.00 of 4 CPUs", "3.60 an hour", "q quits"})
    EXPECT_NE(text.find(fact), std::string::npos) << fact << "\n" << text;
}

TEST(WatchScreen, WhatMattersMostStaysOnASmallOne) {
  const WatchState state = state_after(31, full_input_at);
  const std::string text = sound_text(state, {.columns = 20, .rows = 5, .help = "q quits"});
  EXPECT_NE(text.find("train.py"), std::string::npos) << text;
  EXPECT_NE(text.find("2.00"), std::string::npos) << text;
}

TEST(WatchScreen, WhatIsNotKnownIsNamedOnce) {
  const auto bare = [](double at) {
    WatchInput input = input_at(at);
    for (attach::ProcessSample& process : input.tree.processes)
      process.read_bytes = process.written_bytes = -1;
    input.missing = {"GPU: no NVIDIA driver (libnvidia-ml.so.1)",
                     "CPU power: this machine shows no energy counters (RAPL) in "
                     "/sys/class/powercap",
                     "what a thread waits for a processor (no schedstat)"};
    return input;
  };
  WatchState state = state_after(5, bare);
  state.price_per_hour = -1;
  std::string text = sound_text(state, {});
  text = std::regex_replace(text, std::regex("\\s+"), " ");
  for (const char* fact : {"steps not known (start it with ridge watch -- CMD)",
                           "loader not known",
                           "disk not known",
                           "power not known",
                           "cost not known (--price-per-hour X)",
                           "no NVIDIA driver (libnvidia-ml.so.1)",
                           "no energy counters (RAPL) in /sys/class/powercap",
                           "no schedstat"}) {
    const size_t at = text.find(fact);
    ASSERT_NE(at, std::string::npos) << fact << "\n" << text;
    EXPECT_EQ(text.find(fact, at + 1), std::string::npos) << fact;
  }
  EXPECT_EQ(text.find("GPU 0"), std::string::npos);
}

TEST(WatchScreen, SaysWhenStepsAreStuck) {
  WatchState state = state_after(31, full_input_at);
  WatchInput input = full_input_at(31);
  input.facts = state.last.facts;
  input.wall_ns += 100 * test::kSecondNs;
  attach::advance(state, input);
  EXPECT_NE(sound_text(state, {}).find("no step for 1:41"), std::string::npos);
  EXPECT_NE(watch_line(state).find("none for 1:41"), std::string::npos);
}

TEST(WatchScreen, SoundAtAnySizeForAnyProgram) {
  std::mt19937 random(7);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  const std::string names[] = {kHostile,
                               "",
                               std::string(600, 'x'),
                               "学习.py",
                               "a\u0301\u200b\u202eb",
                               "\U0001f680\U0001f680",
                               "\x1b[2J\x1b[H",
                               std::string(300, '\xff')};
  for (int i = 0; i < 300; ++i) {
    const int devices = below(10), processes = 1 + below(40);
    const auto input = [&](double at) {
      WatchInput made = below(2) == 0 ? full_input_at(at) : input_at(at);
      if (!made.facts.empty()) made.facts[0].program = names[below(8)];
      made.gpus.clear();
      for (int32_t gpu = 0; gpu < devices; ++gpu) {
        made.gpus.push_back(below(3) == 0 ? GpuSample{.number = gpu} : test::gpu_of(gpu));
        made.gpus.back().name = names[below(8)];
        made.gpus.back().held_by = {names[below(8)]};
      }
      for (int process = 2; process < processes; ++process)
        made.tree.processes.push_back(test::process_of(100 + process, names[below(8)], at));
      made.missing.assign(static_cast<size_t>(below(4)), names[below(8)]);
      return made;
    };
    ScreenStyle style;
    style.columns = 1 + below(below(2) == 0 ? 30 : 250);
    style.rows = 1 + below(60);
    style.color = below(2) == 0;
    style.unicode = below(2) == 0;
    style.help = below(2) == 0 ? "q quits, the program goes on" : "";
    const WatchState state = state_after(1 + below(6), input);
    const std::string text = sound_text(state, style);
    if (style.unicode) continue;
    for (char c : text) EXPECT_LT(static_cast<unsigned char>(c), 0x7f);
  }
}

TEST(WatchScreen, LinesForLogsAreInert) {
  const auto hostile = [](double at) {
    WatchInput input = full_input_at(at);
    input.facts[0].program = kHostile;
    return input;
  };
  const WatchState state = state_after(20, hostile);
  for (const std::string& line : {watch_line(state), watch_summary(state)}) {
    EXPECT_EQ(valid_utf8(line), line);
    for (char c : line) EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7f) << line;
    EXPECT_EQ(line.find("\xc2\x9b"), std::string::npos);
  }
}

TEST(WatchCells, FittingKeepsToItsCells) {
  EXPECT_EQ(fitting("abc", 3), "abc");
  EXPECT_EQ(fitting("abcd", 3), "ab\u2026");
  EXPECT_EQ(fitting("abcd", 1), "\u2026");
  EXPECT_EQ(fitting("abcd", 0), "");
  EXPECT_EQ(fitting("学习", 4), "学习");
  EXPECT_EQ(fitting("学习", 3), "学\u2026");
  EXPECT_EQ(fitting("学习", 2), "\u2026");
  EXPECT_EQ(fitting("a\u202eb", 9), "a?b");
  EXPECT_EQ(cells_of("a学"), 3u);
}

// The C library may count fewer cells than we do, for characters that it knows as narrow, but never
// more.
TEST(WatchCells, NoCharacterIsWiderThanCounted) {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) GTEST_SKIP() << "no locale C.UTF-8";
  for (char32_t c = 0x20; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else if (c < 0x800) {
      text += static_cast<char>(0xc0 | c >> 6);
    } else if (c < 0x10000) {
      text += static_cast<char>(0xe0 | c >> 12);
      text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    } else {
      text += static_cast<char>(0xf0 | c >> 18);
      text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
      text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    }
    if (c >= 0x80) text += static_cast<char>(0x80 | (c & 0x3f));
    const std::string shown = fitting(text, 2);
    if (shown != text) continue;  // made inert
    const int width = ::wcwidth(static_cast<wchar_t>(c));
    if (width < 0) continue;  // no character yet
    ASSERT_GT(width, 0) << fmt::format("U+{:04x}", static_cast<uint32_t>(c));
    ASSERT_LE(width, static_cast<int>(cells_of(shown)))
        << fmt::format("U+{:04x}", static_cast<uint32_t>(c));
  }
  std::setlocale(LC_CTYPE, "C");
}

TEST(Sparkline, HeightsAreSharesOfTheWhole) {
  EXPECT_EQ(sparkline({}, 10, 1, true), "");
  EXPECT_EQ(sparkline({0, 0.5, 1, 2}, 10, 1, true), "▁▅██");
  EXPECT_EQ(sparkline({9, 0, 1}, 2, 1, true), "▁█");
  EXPECT_EQ(sparkline({1, 2}, 10, 0, true), "▅█");
  EXPECT_EQ(sparkline({0, 0}, 10, 0, true), "▁▁");
  EXPECT_EQ(sparkline({std::nan(""), -1}, 10, 0, false), "__");
}

}  // namespace
}  // namespace ridge
