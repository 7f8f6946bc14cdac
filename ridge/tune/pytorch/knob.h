// The knobs of a program in PyTorch. Their table is ridge/attach/shim/knobs.json, which opens with
// the meaning of each field; the shim and the patcher read the same file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/named_enum.h"
#include "ridge/base/semantic_class.h"

namespace ridge {

/// The values of a knob: true or false, an integer, one of some words, or CPUs ("0-1,4").
enum class KnobType : uint8_t { kFlag, kNumber, kWord, kCpus };
constexpr std::string_view names_of(KnobType) { return "flag|number|word|cpus"; }

/// The part of a step that a change can make shorter.
enum class ForeignPart : uint8_t {
  kLoading,    ///< The wait for data.
  kComputing,  ///< All but that.
  kAll,
};
constexpr std::string_view names_of(ForeignPart) { return "loading|computing|all"; }

/// One key of [pytorch].
struct Knob {
  std::string key{};
  KnobType type = KnobType::kFlag;
  int64_t least = 0, most = 0;                                  ///< Bounds of a number.
  std::vector<std::string> words{};                             ///< Values of a word.
  SemanticClass semantic_class = SemanticClass::kBitIdentical;  ///< A probe may know better.
  std::string text{};                                           ///< Its effect, in a sentence.
  ForeignPart part = ForeignPart::kAll;                         ///< `shortens` in the table.
  std::vector<std::string> excludes{};  ///< Keys that no recipe has together with this one.
  std::string tried_with{};  ///< Key of the knob whose trials set this one, too; empty: none.
  std::vector<std::string> again_beside{};  ///< Keys whose knobs change what this one gains.
  bool costs_first_steps = false;  ///< No step is timed while the knob waits to be applied.
  bool needs_own_start = false;    ///< No process may have imported packages before it acts.
  bool times_saves = false;        ///< Blocks have the steps that save, which are left out else.
};

/// In the order of recipes.
std::span<const Knob> knobs();
/// nullptr where there is no such key.
const Knob* find_knob(std::string_view key);
/// Keys of knobs and names of other techniques, in the order of trials.
std::span<const std::string> trial_order();

}  // namespace ridge
