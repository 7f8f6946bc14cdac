#include "ridge/train/run_kernels.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "ridge/base/hash.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/machine/machine.h"
#include "ridge/graph/signature.h"
#include "ridge/train/task.h"

namespace ridge {
namespace {

constexpr std::string_view kPrefix = "kernels.";
constexpr std::string_view kDevice = "kernels.device";
constexpr std::string_view kNode = "kernels.node.";
constexpr size_t kDigits = 16;

constexpr size_t kMostNamed = 3;   // changed kernels in a line for the user
constexpr size_t kMostText = 200;  // of a text from a checkpoint there

uint64_t hash_of(const Node& node) { return hash64(signature(node)); }

// Whether a pick among them changes bits.
bool decides_bits(const std::vector<Choice>& choices) {
  return std::any_of(choices.begin(), choices.end(), [&](const Choice& choice) {
    return choice.bits != choices[0].bits;
  });
}

// Calls `visit` with each launch of the program, its node and the candidates for it.
template <typename Visit>
void visit_launches(const Program& program, const Backend& backend, Visit visit) {
  for (size_t entry = 0; entry < program.entries().size(); ++entry)
    for (const PlanStep& step : program.plan().entries[entry].steps) {
      const Node& node = *program.entries()[entry].nodes()[static_cast<size_t>(step.node)];
      visit(step, node, backend.candidates(node));
    }
}

uint64_t parse_hash(std::string_view key) {
  const std::string_view digits = key.substr(kNode.size());
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  check(error == std::errc() && end == digits.data() + digits.size() && digits.size() == kDigits,
        "'{}' does not end in {} hexadecimal digits",
        shortened(key, kMostText),
        kDigits);
  return hash;
}

}  // namespace

void write_picks(const KernelPicks& picks, std::map<std::string, std::string>& texts) {
  if (picks.choices.empty()) return;
  texts[std::string(kDevice)] = picks.device;
  for (const auto& [hash, name] : picks.choices)
    texts[fmt::format("{}{:016x}", kNode, hash)] = name;
}

KernelPicks read_picks(const std::map<std::string, std::string>& texts) {
  KernelPicks picks;
  for (auto at = texts.lower_bound(std::string(kPrefix)); at != texts.end(); ++at) {
    const auto& [key, value] = *at;
    if (!key.starts_with(kPrefix)) break;
    check(!value.empty(), "'{}' is empty", shortened(key, kMostText));
    if (key == kDevice)
      picks.device = value;
    else if (key.starts_with(kNode))
      picks.choices[parse_hash(key)] = value;
  }
  check(picks.choices.empty() || !picks.device.empty(), "'{}' is missing", kDevice);
  return picks;
}

std::string kernel_device(const Backend& backend) {
  const std::string hardware = backend.hardware();
  return plain_line(
      fmt::format("{}; {}", backend.name(), hardware.empty() ? processor_text() : hardware));
}

RunKernels::RunKernels(const TrainConfig& config, const Backend& backend, ChooseCandidate choose)
    : range_(kernels_of(config)),
      backend_(backend),
      device_(kernel_device(backend)),
      choose_(choose ? std::move(choose) : untimed_choices(config)) {}

std::string RunKernels::resume(const std::map<std::string, std::string>& texts) {
  try {
    before_ = read_picks(texts);
    return {};
  } catch (const UserError& error) {
    before_ = {};
    return fmt::format(
        "what the checkpoint says of its kernels is damaged ({}): they are picked again, and the "
        "last bits of the run may change",
        error.message());
  }
}

std::optional<size_t> RunKernels::kept_choice(const Node& node,
                                              const std::vector<Choice>& choices) const {
  if (range_ != KernelRange::kAnyBits || before_.device != device_) return {};
  const auto kept = before_.choices.find(hash_of(node));
  if (kept == before_.choices.end()) return {};
  const auto found = std::find_if(choices.begin(), choices.end(), [&](const Choice& choice) {
    return choice.name == kept->second;
  });
  if (found == choices.end()) return {};
  return static_cast<size_t>(found - choices.begin());
}

ChooseCandidate RunKernels::choose() const {
  return [this](const Node& node, const std::vector<Choice>& choices) {
    const std::optional<size_t> kept = kept_choice(node, choices);
    return kept ? *kept : choose_(node, choices);
  };
}

std::string RunKernels::why_changed() const {
  if (before_.device != device_)
    return fmt::format("they were picked on '{}', and this is '{}'",
                       shortened(before_.device, kMostText),
                       device_);
  return range_ == KernelRange::kAnyBits ? "the device no longer has them"
                                         : "train.kernels no longer asks for the fastest";
}

std::string RunKernels::settle(const Program& program) {
  settled_ = {.device = device_, .choices = {}};
  changed_.clear();
  visit_launches(program, backend_, [&](const PlanStep& step, const Node& node, const auto& all) {
    const uint64_t hash = hash_of(node);
    if (decides_bits(all)) settled_.choices[hash] = step.choice_name;
    // A kernel can differ from the checkpoint's even if only one candidate is left to decide here.
    const auto was = before_.choices.find(hash);
    if (was != before_.choices.end() && was->second != step.choice_name)
      changed_.push_back({step.site, was->second, step.choice_name});
  });
  if (changed_.empty()) return {};
  std::string names;
  for (size_t i = 0; i < std::min(changed_.size(), kMostNamed); ++i)
    names += fmt::format("{}{} ({}, was {})",
                         i == 0 ? "" : ", ",
                         changed_[i].site,
                         changed_[i].is,
                         shortened(changed_[i].was, kMostText));
  if (changed_.size() > kMostNamed)
    names += fmt::format(" and {} more (--json lists all)", changed_.size() - kMostNamed);
  return fmt::format(
      "{} kernel{} other than the checkpoint's, since {}; the last bits of the run change: {}",
      changed_.size(),
      changed_.size() == 1 ? " is" : "s are",
      why_changed(),
      names);
}

std::map<std::string, std::string> RunKernels::texts() const {
  std::map<std::string, std::string> texts;
  if (range_ == KernelRange::kAnyBits) write_picks(settled_, texts);
  return texts;
}

size_t launches_of_other_bits(const Program& program, const Backend& backend) {
  size_t count = 0;
  visit_launches(program, backend, [&](const PlanStep& step, const Node&, const auto& choices) {
    count += has_other_bits(choices, step.choice) ? 1 : 0;
  });
  return count;
}

}  // namespace ridge
