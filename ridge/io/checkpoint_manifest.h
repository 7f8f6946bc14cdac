// manifest.json of a checkpoint: what it holds, and the checksum of everything.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/type.h"

namespace ridge {

/// A checkpoint without its tensors. All numbers come back bit for bit (a NaN as a NaN).
struct Checkpoint {
  int64_t step = 0;                               ///< Optimizer steps done.
  int64_t epoch = 0;                              ///< Position of the loader: epochs done,
  int64_t sample = 0;                             ///< and samples of the present one.
  std::map<std::string, std::string> texts = {};  ///< Anything else; UTF-8.
  std::map<std::string, double> numbers = {};
  std::map<std::string, int64_t> integers = {};

  bool operator==(const Checkpoint&) const = default;
};

struct CheckpointManifest {
  struct File {
    int64_t bytes = 0;
    uint64_t checksum = 0;
  };
  struct Entry {
    std::string name;
    TensorType type;
    uint64_t checksum = 0;
  };

  Checkpoint info;
  std::map<std::string, File> files;
  std::vector<Entry> tensors;
};

/// The text of `manifest`, schema "ridge.checkpoint/1". Its last member, "seal", is the checksum of
/// all before it. UserError for text that is not UTF-8.
std::string print_manifest(const CheckpointManifest& manifest);

/// UserError that opens with `source` unless the text ends in the seal of what comes before.
void check_seal(std::string_view text, std::string_view source);

/// The manifest of `text`, whose seal is not checked. UserError that opens with `source` for
/// anything that is missing, of the wrong kind or out of range.
CheckpointManifest parse_manifest(std::string_view text, std::string_view source);

}  // namespace ridge
