// The kernels of a run whose picks decide bits: a checkpoint keeps them, so that a resumed run has
// the bits of one that never stopped, whatever the clock says by then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ridge/config/config.h"
#include "ridge/run/program.h"
#include "ridge/run/tuner.h"

namespace ridge {

/// Names of choices (Choice::name) by the hash of signature(node), and the device they hold for.
struct KernelPicks {
  std::string device;
  std::map<uint64_t, std::string> choices;

  bool operator==(const KernelPicks&) const = default;
};

/// Adds the picks to the texts of a checkpoint: "kernels.device", and "kernels.node.HASH" with 16
/// hexadecimal digits for each node. Without choices nothing is added.
void write_picks(const KernelPicks& picks, std::map<std::string, std::string>& texts);

/// The picks in such texts; without a device where there are none. UserError that names the text
/// which is damaged.
KernelPicks read_picks(const std::map<std::string, std::string>& texts);

/// Names the device that picks hold for: a GPU with the versions of its driver and libraries, or
/// the processor.
std::string kernel_device(const Backend& backend);

/// A launch whose kernel is another one than the checkpoint's.
struct ChangedKernel {
  std::string site, was, is;
};

class RunKernels {
 public:
  /// `choose` picks where no pick is kept (null: untimed_choices()), `config` says among what. The
  /// backend must outlive it.
  RunKernels(const TrainConfig& config, const Backend& backend, ChooseCandidate choose);

  /// Takes the picks of a checkpoint's texts, where they were made on the same device for kernels
  /// of any bits. Returns a line for the user where the texts are damaged, which leaves all to be
  /// picked again; else nothing.
  std::string resume(const std::map<std::string, std::string>& texts);

  /// For Task::choose: nodes with a pick are not timed. This object has to outlive it.
  ChooseCandidate choose() const;

  /// Notes what the program runs. Returns a line for the user where that is not what the checkpoint
  /// had, or where it was picked elsewhere; else nothing.
  std::string settle(const Program& program);

  /// Texts for a checkpoint of the program, with its kernels. Empty where no pick decides bits.
  std::map<std::string, std::string> texts() const;
  /// Launches with another kernel than the checkpoint had, in the order of the plan.
  const std::vector<ChangedKernel>& changed() const { return changed_; }

 private:
  std::optional<size_t> kept_choice(const Node& node, const std::vector<Choice>& choices) const;
  std::string why_changed() const;

  KernelRange range_;
  const Backend& backend_;
  std::string device_;
  ChooseCandidate choose_;
  KernelPicks before_;   ///< The checkpoint's.
  KernelPicks settled_;  ///< The program's.
  std::vector<ChangedKernel> changed_;
};

/// Launches of the program whose kernels may have other bits than the CPU's (has_other_bits()).
size_t launches_of_other_bits(const Program& program, const Backend& backend);

}  // namespace ridge
