// Options of a benchmark: words in pairs, "--name VALUE".
#pragma once

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"

namespace ridge::bench {

struct Option {
  std::string_view name;                                 ///< "--json"
  std::function<void(const std::string& value)> read{};  ///< Called with the word behind the name.
};

/// Reads the words of a command line in their order. Returns false, after printing `usage`, where
/// one asks for help; UserError for a name that `known` lacks, or for one without a value.
inline bool read_options(int argc,
                         char** argv,
                         const char* usage,
                         std::initializer_list<Option> known) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help") {
      fmt::print("{}", usage);
      return false;
    }
    check(i + 1 < argc, "{} needs a value", name);
    const Option* option = known.begin();
    while (option != known.end() && option->name != name) ++option;
    check(option != known.end(), "unknown option '{}'; --help lists those that there are", name);
    option->read(argv[i + 1]);
  }
  return true;
}

/// Returns the number that `text` is; UserError, which says `where` it stands, if that is none of
/// the type or below 1.
template <typename Number = int64_t>
Number positive_number(const std::string& text, const std::string& where) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  check(result.ec == std::errc() && result.ptr == end && number >= 1,
        "{}: '{}' is not a positive number",
        where,
        text);
  return number;
}

/// An option whose value is kept as it is. `to` has to outlive it.
inline Option text_option(std::string_view name, std::string& to) {
  return {name, [&to](const std::string& value) { to = value; }};
}

/// Threads of this process's parallel loops.
inline Option threads_option() {
  return {"--threads", [](const std::string& value) {
            set_num_threads(positive_number<int>(value, "--threads"));
          }};
}

/// Instructions that kernels may use.
inline Option isa_option() {
  return {"--isa", [](const std::string& value) { cpu::set_isa(cpu::choose_isa(value)); }};
}

}  // namespace ridge::bench
