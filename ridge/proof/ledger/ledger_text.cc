#include "ridge/proof/ledger/ledger_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "ridge/base/error.h"
#include "ridge/proof/trial_text.h"

namespace ridge {
namespace {

// Relative error allowed in a recomputed interval: another machine's exp and log may differ in the
// last digits.
constexpr double kSpeedError = 1e-6;

std::string row(std::string_view name, std::string_view text) {
  return fmt::format("  {:<11}{}\n", name, plain_line(text));
}

// Line by line, moved to the right; nothing for no text.
std::string block(std::string_view text) {
  std::string moved;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);)
    moved += line.empty() ? "\n" : fmt::format("    {}\n", plain_line(line));
  return moved;
}

std::string predicted_words(const TrialRecord& record) {
  std::string text = "nothing";
  if (record.predicted)
    text = fmt::format(
        "{:.2f} to {:.2f} times as fast", record.predicted->low, record.predicted->high);
  if (record.ceiling)
    text += fmt::format("; bound {:.2f}, were its part of a step free", *record.ceiling);
  return text;
}

std::string measured_words(const TrialRecord& record) {
  if (!record.measured) return "nothing that tells";
  const SpeedEstimate& measured = *record.measured;
  std::string text = fmt::format("{:.3f} times as fast ({:.3f} to {:.3f}, {:.4g} %)",
                                 measured.mid,
                                 measured.low,
                                 measured.high,
                                 100 * measured.confidence);
  if (!record.predicted) return text;
  if (measured.mid < record.predicted->low) return text + ", less than predicted";
  return text +
         (measured.mid > record.predicted->high ? ", more than predicted" : ", as predicted");
}

std::string opening(const TrialRecord& record) {
  std::string text = fmt::format("trial {}: {}\n\n", record.number, plain_line(record.technique));
  text += row("change", record.change.empty() ? "none" : record.change);
  text +=
      row("class",
          fmt::format("{}: {}", name_of(record.semantic_class), words_of(record.semantic_class)));
  text += row("believed", record.hypothesis.empty() ? "nothing" : record.hypothesis);
  text += row("predicted", predicted_words(record));
  text += row("measured", measured_words(record));
  text += row("pairs",
              fmt::format("{} judged, {} dropped; blocks of {} steps{}",
                          record.judged_pairs(),
                          record.dropped_pairs(),
                          record.block_steps,
                          record.after_block_steps == record.block_steps
                              ? ""
                              : fmt::format(" against {}, for the same samples",
                                            record.after_block_steps)));
  text += row("guard", record.guard.empty() ? "not asked" : record.guard);
  text += row("verdict",
              words_of(record.verdict) + (record.reason.empty() ? "" : ": " + record.reason));
  text += row("when", fmt::format("{}, {:.1f} s", record.started, record.seconds));
  text += row("machine", record.machine);
  text += row("plan", record.plan_hash);
  text += row("recipe", record.recipe_hash.empty() ? "none" : record.recipe_hash);
  return text + block(record.recipe);
}

std::string capital(double log_capital) { return fmt::format("{:.3g}", std::exp(log_capital)); }

// Selects the pairs that get a line: all of a short trial, of a long one ever fewer, and those that
// decide.
bool is_shown(size_t pair, size_t pairs) {
  if (pairs <= 24 || pair <= 8 || pair == pairs) return true;
  const auto step = static_cast<size_t>(std::exp2(std::floor(std::log2(pair)) - 2));
  return pair % step == 0;
}

std::string bet_line(const PairRecord& pair, size_t number, const Judge& judge) {
  const double outer = pair.seconds[0] + pair.seconds[3];
  const double inner = pair.seconds[1] + pair.seconds[2];
  const std::string ratio = fmt::format("{:>5}  {:<5} {:>11.2f} {:>11.2f} {:>7.3f}",
                                        number,
                                        pair.before_outside ? "ABBA" : "BAAB",
                                        500 * (pair.before_outside ? outer : inner),
                                        500 * (pair.before_outside ? inner : outer),
                                        std::exp(pair.log_ratio));
  if (pair.dropped) return ratio + "  dropped\n";
  return fmt::format("{} {:>7.3f} {:>9} {:>9}\n",
                     ratio,
                     std::exp(judge.centre()),
                     capital(judge.log_capital_for()),
                     capital(judge.log_capital_against()));
}

std::string words_of_bets(Verdict verdict) {
  if (verdict == Verdict::kOpen) return "no verdict";
  return verdict == Verdict::kFaster ? "faster" : "not faster";
}

// The judge's series, recomputed.
std::string bets(const TrialRecord& record) {
  if (record.pairs.empty()) return "\nNothing was timed.\n";
  std::string text = fmt::format(
      "\nHow the bets went: one player bets that it is more than {:.3f} times as fast, one that "
      "it\n"
      "is less than {:.3f} times; each starts with 1, and {:.4g} or {:.4g} makes the verdict.\n\n"
      " pair  order   before ms    after ms   ratio  median     above     below\n",
      std::exp(record.judge.worth),
      std::exp(record.judge.hope),
      1 / record.judge.accept_error,
      1 / record.judge.reject_error);
  Judge judge(record.judge);
  size_t decided = 0;
  for (size_t i = 0; i < record.pairs.size(); ++i) {
    const PairRecord& pair = record.pairs[i];
    if (!pair.dropped) judge.add(pair.log_ratio);
    const bool decides = decided == 0 && judge.verdict() != Verdict::kOpen;
    if (decides) decided = i + 1;
    if (decides || is_shown(i + 1, record.pairs.size())) text += bet_line(pair, i + 1, judge);
  }
  text += fmt::format("\nMade again from these pairs: {}", words_of_bets(judge.verdict()));
  return text + (decided == 0 ? ".\n" : fmt::format(", at pair {}.\n", decided));
}

bool differs(double a, double b) { return !(std::abs(a - b) <= kSpeedError * std::abs(b)); }

// The verdict that the judge must reach from the pairs for this one; nothing where the verdict does
// not rest on the pairs.
std::optional<Verdict> claimed_of_pairs(TrialVerdict verdict) {
  switch (verdict) {
    case TrialVerdict::kKept:
    case TrialVerdict::kUnguarded:
      return Verdict::kFaster;
    case TrialVerdict::kNotFaster:
    case TrialVerdict::kDropped:
      return Verdict::kNotFaster;
    case TrialVerdict::kOpen:
      return Verdict::kOpen;
    case TrialVerdict::kGuardFailed:
    case TrialVerdict::kFailed:
    case TrialVerdict::kRefused:
    case TrialVerdict::kNotTried:
      break;
  }
  return std::nullopt;
}

void contradict_verdict(const TrialRecord& record,
                        const Judge& judge,
                        std::vector<std::string>& found) {
  if (record.judged_pairs() == 0) return;
  if (const std::optional<Verdict> claimed = claimed_of_pairs(record.verdict);
      claimed && *claimed != borne_out(judge))
    found.push_back(fmt::format("the verdict is '{}', but the pairs say '{}'",
                                words_of(record.verdict),
                                words_of_bets(borne_out(judge))));
}

void contradict_interval(const TrialRecord& record,
                         const Judge& judge,
                         std::vector<std::string>& found) {
  if (!record.measured) return;
  const SpeedEstimate& said = *record.measured;
  const std::optional<ConfidenceInterval> interval = judge.interval(said.confidence);
  if (!interval) {
    found.push_back("an interval is given, but the pairs are too few for one");
    return;
  }
  const SpeedEstimate made{
      std::exp(interval->low), std::exp(judge.centre()), std::exp(interval->high), said.confidence};
  if (differs(said.low, made.low) || differs(said.mid, made.mid) || differs(said.high, made.high))
    found.push_back(fmt::format(
        "the interval of the pairs is {:.4f}, {:.4f}, {:.4f}", made.low, made.mid, made.high));
}

void contradict_recipe(const TrialRecord& record,
                       RecipeHash hash_of,
                       std::vector<std::string>& found) {
  if (record.recipe_hash.empty()) return;
  try {
    const std::string hash = hash_of(record.recipe);
    if (hash != record.recipe_hash) found.push_back("the hash of the recipe is " + hash);
  } catch (const UserError& error) {
    found.push_back(fmt::format("the recipe cannot be read: {}", error.message()));
  }
}

}  // namespace

std::vector<std::string> contradictions(const TrialRecord& record, RecipeHash hash_of) {
  std::vector<std::string> found;
  const Judge judge = judge_again(record);
  contradict_verdict(record, judge, found);
  contradict_interval(record, judge, found);
  contradict_recipe(record, hash_of, found);
  return found;
}

std::string explain_trial(const TrialRecord& record,
                          const std::vector<std::string>& its_contradictions) {
  std::string text = opening(record) + bets(record);
  if (its_contradictions.empty())
    return text + "Verdict, interval and recipe follow from what is recorded.\n";
  for (const std::string& one : its_contradictions)
    text += fmt::format("Does not hold: {}.\n", plain_line(one));
  return text;
}

std::string ledger_table(const Ledger& ledger) {
  const LedgerRun& run = ledger.run;
  const auto tried = std::count_if(ledger.trials.begin(), ledger.trials.end(), is_of_technique);
  return fmt::format(
      "{}\n{}, ridge {}\nstarted {}, budget {:.0f} s, seed {}\n\n{}\n{} of {} kept\n",
      plain_line(run.target),
      plain_line(run.machine),
      plain_line(run.version),
      plain_line(run.started),
      run.budget_s,
      run.seed,
      trial_table(ledger.trials),
      kept_steps(ledger.trials).size(),
      tried);
}

std::string ledger_json(const Ledger& ledger) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.ledger.show/1").key("run").begin_object();
  write_fields(json, ledger.run);
  json.end_object().field("note", ledger.note).key("trials").begin_array();
  for (const TrialRecord& record : ledger.trials) {
    json.begin_object();
    write_fields(json, record);
    json.end_object();
  }
  json.end_array().end_object().finish();
  return text + "\n";
}

}  // namespace ridge
