// Output of the verbs, and numbers in a form for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

/// Writes data for the user to stdout. UserError when not all of it arrives: a full disk or a
/// closed pipe must not pass for success.
void write_stdout(std::string_view text);

/// UserError where stdout takes nothing (it is closed, or a device that is full): said before work
/// is done that would be lost.
void check_stdout();

/// Writes to stderr; a failure is ignored.
void write_stderr(std::string_view text);

/// Writes a line that begins with "note: " to stderr.
void write_note(std::string_view note);

/// UserError where no file can be written at `path` (its folder, its name, a full disk): said
/// before work is done that would be lost. An empty path is fine.
void check_place(const std::string& path);

/// Three digits and a decimal prefix: "1.25 G", "12.0 k", "7".
std::string scaled(double value);
/// "152.3 MiB", "17 B".
std::string bytes_text(int64_t bytes);
/// "0.8 s", "42 s", "2:31", "1:02:03".
std::string duration_text(double seconds);
/// The time of a kernel or a run: "12.5 us", "830 us", "14.2 ms".
std::string run_time_text(double seconds);
/// "4,690".
std::string grouped(int64_t value);

}  // namespace ridge
