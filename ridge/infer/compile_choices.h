// How the programs of a session are compiled where a recipe says it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/named_enum.h"
#include "ridge/compile/plan.h"
#include "ridge/graph/graph.h"

namespace ridge {

/// The kernels of nodes that a recipe does not name.
enum class KernelPick : uint8_t {
  kFirst,         ///< The first that serve.
  kTimed,         ///< The fastest of those with the bits of the first, by timing them.
  kTimedAnyBits,  ///< The fastest of all that are right.
};
constexpr std::string_view names_of(KernelPick) { return "first|timed|timed_any_bits"; }

/// Kernels by node: 16 hexadecimal digits of the hash of its signature(), and the choice's name.
using NamedKernels = std::map<std::string, std::string>;

struct CompileChoices {
  DType precision = DType::kF32;          ///< Dtype that contractions compute in: f32 or bf16.
  std::vector<std::string> passes_off{};  ///< Names of passes to leave out.
  KernelPick pick = KernelPick::kFirst;
  std::vector<std::string> kernels_off{};  ///< Choices that serve only where there is no other.
  NamedKernels kernels{};                  ///< They win over the three above.
  bool operator==(const CompileChoices&) const = default;
};

/// Takes kernels as the choices say. Nothing is kept of what it times.
class RecipeKernels {
 public:
  /// Both must outlive it.
  RecipeKernels(const CompileChoices& choices, Backend& backend);
  ~RecipeKernels();

  /// PlanOptions::choose, which this object has to outlive. UserError for a kernel that this
  /// machine does not have for its node.
  ChooseCandidate choose();

 private:
  struct Timing;
  const CompileChoices& choices_;
  Backend& backend_;
  std::unique_ptr<Timing> timing_;  ///< Null where nothing is timed.
};

/// The kernels of a planned entry that are not the first that serve.
NamedKernels named_kernels(const Graph& graph, const EntryPlan& entry, const Backend& backend);

}  // namespace ridge
