#include "ridge/tune/pytorch/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "ridge/base/html/markup.h"

namespace ridge {
namespace {

constexpr std::streamoff kTailBytes = 16384;
constexpr size_t kTailLines = 8, kMostLine = 300;

/// The last lines of a file that hold anything, on one screen; what a progress bar wrote over
/// itself counts as lines.
std::vector<std::string> tail_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.find_first_not_of(" \t") != std::string_view::npos)
      lines.push_back(shortened(line, kMostLine));
    at = end + 1;
  }
  if (lines.size() > kTailLines)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kTailLines));
  return lines;
}

/// Which of several processes that step is looked at first: the first rank, then who steps most.
bool is_before(const attach::ProcessFacts& a, const attach::ProcessFacts& b) {
  const auto rank = [](const attach::ProcessFacts& facts) {
    return std::max<int64_t>(0, facts.rank);
  };
  return rank(a) != rank(b) ? rank(a) < rank(b) : a.steps > b.steps;
}

}  // namespace

ForeignProgram::ForeignProgram(const ForeignTarget& target,
                               const ForeignRecipe& recipe,
                               attach::ShimOptions shim,
                               int64_t steps,
                               attach::WarmParent* parent)
    : place_(std::make_unique<attach::Workplace>(target.command, target.consent)) {
  shim.recipe = recipe.shim_json();
  shim_ = std::make_unique<attach::ShimFolder>(shim);
  if (shim.gate) gate_ = std::make_unique<attach::StepGate>(shim_->path());
  if (!shim.imports.empty()) parent_ = std::make_unique<attach::WarmParent>(shim_->path());
  attach::ProgramRequest request;
  request.supervisor = target.supervisor;
  // Its last output should be there when it has crashed.
  request.environment.emplace_back("PYTHONUNBUFFERED", "1");
  for (const auto& entry : recipe.environment()) request.environment.push_back(entry);
  for (const auto& entry : shim_->environment()) request.environment.push_back(entry);
  request.folders.push_back(shim_->path());
  place_->place(request, steps);
  if (parent_ != nullptr) parent_->started_as(request);
  if (parent != nullptr) program_ = parent->start(request, shim_->path());
  is_forked_ = program_ != nullptr;
  if (!is_forked_) program_ = std::make_unique<attach::Program>(request);
}

ForeignProgram::~ForeignProgram() {
  // Processes that it leaves running would be there in the next trial, too.
  if (program_->wait(0)) program_->kill_all();
}

std::optional<attach::ProcessFacts> ForeignProgram::facts() const {
  std::vector<attach::ProcessFacts> all = shim_->facts();
  std::erase_if(all, [&](const attach::ProcessFacts& process) {
    const bool is_other =
        gate_ != nullptr && gate_->process() != 0 && gate_->process() != process.pid;
    return process.steps == 0 || is_other;
  });
  const auto first = std::ranges::min_element(all, is_before);
  return first == all.end() ? std::nullopt : std::optional(*first);
}

std::string ForeignProgram::why_no_step() const {
  if (!shim_->was_loaded())
    return "no Python that it ran looks for sitecustomize (it is no Python program, or runs with "
           "-I, -E or -S, or replaces PYTHONPATH)";
  const std::vector<attach::ProcessFacts> all = shim_->facts();
  if (all.empty()) return "looked for a process that imports torch: there is none";
  std::string text = "looked for an optimizer's step() and for calls of a module";
  int64_t steps = 0;
  for (const attach::ProcessFacts& process : all) steps = std::max(steps, process.steps);
  text += steps > 0 ? fmt::format(": there were {} steps, but they could not be held", steps)
                    : fmt::format(": none in {} process{} that imported torch {}",
                                  all.size(),
                                  all.size() == 1 ? "" : "es",
                                  all.front().torch);
  for (const attach::ProcessFacts& process : all)
    for (const std::string& note : process.notes) text += "; " + plain_line(note);
  return text;
}

std::string ForeignProgram::last_lines() const {
  return fmt::format("{}", fmt::join(tail_of(place_->output_path()), "\n"));
}

VariantFailed ForeignProgram::failure(const std::string& what) const {
  const std::string lines = last_lines();
  return VariantFailed(lines.empty() ? what : what + "; its last lines:\n" + lines);
}

VariantFailed ForeignProgram::failure(const attach::ProgramEnd& end) const {
  if (!end.trouble.empty()) return failure(end.trouble);
  if (end.signal == 0) return failure(fmt::format("it ended with exit code {}", end.exit_code));
  return failure(fmt::format("it was ended by signal {} ({}){}",
                             end.signal,
                             strsignal(end.signal),
                             end.signal == SIGKILL ? ": the system may be out of memory" : ""));
}

}  // namespace ridge
