// The ledger of a run of `ridge optimize`: JSON lines (ridge.ledger/1). The first describes the
// run, each other one is a trial, written when the trial is over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/json_writer.h"
#include "ridge/io/append_file.h"
#include "ridge/proof/trial_record.h"

namespace ridge {

/// The first line.
struct LedgerRun {
  std::string target;       ///< "examples/fashion_mnist.toml on cpu"
  std::string config;       ///< Path of the configuration.
  std::string config_hash;  ///< config_hash() of it, without a recipe.
  std::string machine;      ///< machine_fingerprint()
  std::string version;      ///< Ridge's own version.
  std::string started;      ///< "2026-11-21T20:15:03Z"
  double budget_s = 0;
  uint64_t seed = 0;

  /// The list that json_fields.h describes.
  static void fields(auto& self, auto&& visit) {
    visit("target", self.target);
    visit("config", self.config);
    visit("config_hash", self.config_hash);
    visit("machine", self.machine);
    visit("version", self.version);
    visit("started", self.started);
    visit("budget_s", self.budget_s, 0.0, kMostSeconds);
    visit("seed", self.seed);
  }
};

struct Ledger {
  LedgerRun run;
  std::vector<TrialRecord> trials;
  std::string note;  ///< Names the parts of the file that could not be read; empty: none.
};

/// Pairs of one trial at most.
inline constexpr size_t kMostPairs = 4096;

/// Writes a ledger. A line is in the file when a call returns, so that a kill loses at most the one
/// in hand. UserError when the file cannot be written.
class LedgerWriter {
 public:
  /// Starts `path` anew.
  LedgerWriter(const std::filesystem::path& path, const LedgerRun& run);
  /// InternalError for a record that could not be read back: a time that is none, say, or a number
  /// that is not above the last one's.
  void add(const TrialRecord& record);

 private:
  void write_line(std::string_view line);

  AppendFile file_;
  std::string first_line_;
  int64_t last_number_ = 0;
};

/// Each on one line that ends in a newline.
std::string to_json(const LedgerRun& run);
std::string to_json(const TrialRecord& record);

/// The fields of a run, and of a trial without its pairs, into an open object.
void write_fields(JsonWriter& json, const LedgerRun& run);
void write_fields(JsonWriter& json, const TrialRecord& record);

/// Reads what LedgerWriter wrote. A last line that is cut off is reported in `note`; all else that
/// is wrong is a UserError with `name` and the line: what is no JSON, what is missing, numbers that
/// cannot be, log ratios that are not those of their blocks.
Ledger parse_ledger(std::string_view text, std::string_view name);
/// parse_ledger of the file at `path`. UserError when it cannot be read.
Ledger read_ledger_file(const std::filesystem::path& path);

/// The trial with this number. UserError when there is none.
const TrialRecord& trial_of(const Ledger& ledger, int64_t number);

}  // namespace ridge
