// Times of kernels, kept from run to run in a SQLite file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

/// A candidate for a node, and what is known of it.
struct CandidateTime {
  std::string name;
  double seconds = 0;  ///< Median of one launch; 0 when it was not timed.
  std::string note;    ///< Why it cannot be picked or was not timed; empty: neither.
};

/// The measurements of a node's candidates.
struct NodeTimes {
  std::vector<CandidateTime> candidates;  ///< In the order of Backend::candidates().
  size_t pick = 0;
};

enum class CacheAccess : uint8_t {
  kReadAndWrite,
  kRead,  ///< No file is made: without one nothing is found.
};

/// Keeps NodeTimes by machine and node. What it cannot read or write costs time, never a run: after
/// the first failure it finds nothing, keeps nothing, and note() says why.
class ChoiceCache {
 public:
  /// The file choices-N.sqlite in `folder`, which is made; N is the version of its tables. An empty
  /// path keeps nothing.
  ChoiceCache(const std::filesystem::path& folder,
              std::string machine,
              CacheAccess access = CacheAccess::kReadAndWrite);
  ~ChoiceCache();

  /// Whether there is a file in which something may be found.
  bool is_open() const { return database_ != nullptr; }
  /// False when nothing is kept of the node.
  bool find(std::string_view node, NodeTimes& times);
  /// Does nothing with CacheAccess::kRead.
  void keep(std::string_view node, const NodeTimes& times);
  const std::string& note() const { return note_; }

 private:
  struct Database;
  void fail(std::string_view what);

  std::string machine_, note_;
  std::unique_ptr<Database> database_;
};

}  // namespace ridge
