// A file of `ridge capture`: the graphs that torch.compile gave to Ridge while a program ran. It is
// JSON, and read as hostile:
//
//   {"format": "ridge.capture/1", "graphs": [
//     {"kind": "forward", "torch": "2.15.0", "left": [[OPERATOR, COUNT, REASON], ...],
//      "programs": [GRAPH of aten_graph.h, ...]}, ...]}
//
// The kind is "forward", "backward" or "inference".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/import/aten/aten_graph.h"

namespace ridge::aten {

struct CapturedGraph {
  std::string kind, torch;
  /// Operators that stay PyTorch's.
  struct Left {
    std::string op;
    int64_t count = 0;
    std::string reason;
  };
  std::vector<Left> left = {};
  std::vector<AtenGraph> programs = {};
};

bool is_capture(std::string_view text);

/// The text of a file, of the texts of its graphs.
std::string capture_of(const std::vector<std::string>& graphs);

/// UserError, opened by `source`, for a text that is no such file.
std::vector<CapturedGraph> parse_capture(std::string_view text, std::string_view source);

}  // namespace ridge::aten
