// Writing: a line a trial.
#include "ridge/proof/ledger/ledger.h"

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/json_fields.h"

namespace ridge {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 15;  // AppendFile takes no more than its buffer at once

}  // namespace

void write_fields(JsonWriter& json, const LedgerRun& run) {
  LedgerRun::fields(run, FieldWriter(json));
}

void write_fields(JsonWriter& json, const TrialRecord& record) {
  TrialRecord::fields(record, FieldWriter(json));
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
  TrialRecord::block_fields(record, FieldWriter(json));
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
