// A third-party program as a trial runs it: in a place of its own, under a supervisor, with the
// shim, its output kept from the terminal.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ridge/attach/process/program.h"
#include "ridge/attach/process/workplace.h"
#include "ridge/attach/shim.h"
#include "ridge/attach/step_gate.h"
#include "ridge/attach/warm_parent.h"
#include "ridge/tune/pytorch/recipe.h"
#include "ridge/tune/target.h"

namespace ridge {

/// A command, and how it may be run.
struct ForeignTarget {
  attach::CommandTemplate command;
  attach::Consent consent = attach::Consent::kOut;
  std::string supervisor = "/proc/self/exe";
};

class ForeignProgram {
 public:
  /// Starts it. `shim.recipe` is filled in from `recipe`; `steps` is what {steps} becomes.
  /// It is forked from `parent`, where that is given and can. attach::ProgramError and UserError as
  /// attach::Program and attach::Workplace.
  ForeignProgram(const ForeignTarget& target,
                 const ForeignRecipe& recipe,
                 attach::ShimOptions shim,
                 int64_t steps,
                 attach::WarmParent* parent = nullptr);
  ForeignProgram(const ForeignProgram&) = delete;
  ForeignProgram& operator=(const ForeignProgram&) = delete;
  /// Ends it and all of it.
  ~ForeignProgram();

  attach::Program& program() { return *program_; }
  const attach::ShimFolder& shim() const { return *shim_; }
  const attach::Workplace& place() const { return *place_; }
  /// The gate that holds its steps; nullptr where `shim.gate` was not asked for.
  attach::StepGate* gate() { return gate_.get(); }
  /// The process that forks others, where `shim.imports` was given; else nullptr.
  attach::WarmParent* parent() { return parent_.get(); }
  bool is_forked() const { return is_forked_; }
  /// Facts of the process that steps; in a torchrun of rank 0. Nothing before there is one.
  std::optional<attach::ProcessFacts> facts() const;
  /// Why there is no such process, as far as can be seen: what was looked for, and what there is.
  std::string why_no_step() const;
  /// The last lines of what it wrote, for people.
  std::string last_lines() const;
  /// `what`, with the last lines.
  VariantFailed failure(const std::string& what) const;
  /// The failure of a program that has ended: "it ended with exit code 1", with the last lines.
  VariantFailed failure(const attach::ProgramEnd& end) const;

 private:
  std::unique_ptr<attach::Workplace> place_;
  std::unique_ptr<attach::ShimFolder> shim_;
  std::unique_ptr<attach::StepGate> gate_;
  std::unique_ptr<attach::WarmParent> parent_;
  std::unique_ptr<attach::Program> program_;
  bool is_forked_ = false;
};

}  // namespace ridge
