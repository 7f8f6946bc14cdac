// Writing: a line a trial.
#include "ridge/proof/ledger/ledger.h"

#include <algorithm>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 15;  // AppendFile takes no more than its buffer at once

void write_predicted(JsonWriter& json, const TrialRecord& record) {
  if (!record.predicted) {
    json.key("predicted").value(nullptr);
    return;
  }
  json.key("predicted").begin_object();
  json.field("lo", record.predicted->low).field("hi", record.predicted->high).end_object();
}

void write_measured(JsonWriter& json, const TrialRecord& record) {
  if (!record.measured) {
    json.key("measured").value(nullptr);
    return;
  }
  const SpeedEstimate& measured = *record.measured;
  json.key("measured").begin_object();
  json.field("lo", measured.low).field("mid", measured.mid).field("hi", measured.high);
  json.field("confidence", measured.confidence).end_object();
}

void write_judge(JsonWriter& json, const JudgeOptions& judge) {
  json.key("judge").begin_object();
  json.field("worth", judge.worth).field("hope", judge.hope);
  json.field("accept_error", judge.accept_error).field("reject_error", judge.reject_error);
  json.end_object();
}

void write_pairs(JsonWriter& json, const std::vector<PairRecord>& pairs) {
  json.key("blocks").begin_array();
  for (const PairRecord& pair : pairs) {
    json.begin_object().field("order", pair.before_outside ? "ABBA" : "BAAB");
    json.field("dropped", pair.dropped).key("seconds").begin_array();
    for (double seconds : pair.seconds) json.value(seconds);
    json.end_array().field("log_ratio", pair.log_ratio).end_object();
  }
  json.end_array();
}

}  // namespace

void write_fields(JsonWriter& json, const LedgerRun& run) {
  json.field("target", run.target).field("config", run.config);
  json.field("config_hash", run.config_hash).field("machine", run.machine);
  json.field("version", run.version).field("started", run.started);
  json.field("budget_s", run.budget_s).field("seed", run.seed);
}

void write_fields(JsonWriter& json, const TrialRecord& record) {
  json.field("number", record.number).field("technique", record.technique);
  json.field("change", record.change).field("class", name_of(record.semantic_class));
  json.field("hypothesis", record.hypothesis);
  write_predicted(json, record);
  json.key("ceiling");
  if (record.ceiling)
    json.value(*record.ceiling);
  else
    json.value(nullptr);
  write_measured(json, record);
  json.field("pairs", record.judged_pairs()).field("dropped", record.dropped_pairs());
  json.field("verdict", name_of(record.verdict)).field("reason", record.reason);
  json.field("guard", record.guard).field("recipe_before", record.recipe_before);
  json.field("recipe", record.recipe).field("recipe_hash", record.recipe_hash);
  json.field("plan_hash", record.plan_hash).field("machine", record.machine);
  json.field("started", record.started).field("seconds", record.seconds);
}

std::string to_json(const LedgerRun& run) {
  std::string line;
  JsonWriter json(line);
  json.begin_object().field("schema", "ridge.ledger/1");
  write_fields(json, run);
  json.end_object().finish();
  return line + "\n";
}

std::string to_json(const TrialRecord& record) {
  std::string line;
  JsonWriter json(line);
  json.begin_object();
  write_fields(json, record);
  json.field("block_steps", record.block_steps);
  json.field("after_block_steps", record.after_block_steps).field("work", record.work);
  write_judge(json, record.judge);
  write_pairs(json, record.pairs);
  json.end_object().finish();
  return line + "\n";
}

LedgerWriter::LedgerWriter(const std::filesystem::path& path, const LedgerRun& run)
    : file_(path, 0), first_line_(to_json(run)) {
  write_line(first_line_);
}

void LedgerWriter::add(const TrialRecord& record) {
  const std::string line = to_json(record);
  try {
    parse_ledger(first_line_ + line, "ledger");
  } catch (const UserError& error) {
    throw InternalError(fmt::format("[LedgerWriter] trial {}: {}", record.number, error.what()));
  }
  check_internal(record.number > last_number_,
                 "[LedgerWriter] trial {} after {}",
                 record.number,
                 last_number_);
  last_number_ = record.number;
  write_line(line);
}

void LedgerWriter::write_line(std::string_view line) {
  while (!line.empty()) {
    file_.append(as_bytes(line.substr(0, kPieceBytes)));
    line.remove_prefix(std::min(line.size(), kPieceBytes));
  }
  file_.flush();
}

const TrialRecord& trial_of(const Ledger& ledger, int64_t number) {
  for (const TrialRecord& trial : ledger.trials)
    if (trial.number == number) return trial;
  throw UserError(fmt::format("the ledger has no trial {}", number),
                  ledger.trials.empty() ? "it has none at all"
                                        : fmt::format("its trials are {} to {}",
                                                      ledger.trials.front().number,
                                                      ledger.trials.back().number));
}

}  // namespace ridge
