#include "ridge/tune/pytorch/knob.h"

#include <algorithm>

#include "ridge/attach/shim.h"
#include "ridge/base/error.h"
#include "ridge/io/json.h"

namespace ridge {
namespace {

// Opens errors: the table is part of the library, so only who edits it can see one.
constexpr std::string_view kTable = "knobs.json";

const std::string& text_in(const JsonValue& row, std::string_view field) {
  return row.at(field, kTable).as_string(kTable);
}

template <NamedEnum E>
E named(const JsonValue& row, std::string_view field) {
  const std::string& name = text_in(row, field);
  if (const auto found = parse_name<E>(name)) return *found;
  throw InternalError(fmt::format("{}: unknown {} '{}'", kTable, field, name));
}

std::vector<std::string> list_in(const JsonValue& row, std::string_view field) {
  std::vector<std::string> list;
  if (const JsonValue* found = row.find(field))
    for (const JsonValue& entry : found->as_array(kTable)) list.push_back(entry.as_string(kTable));
  return list;
}

Knob read_knob(const JsonValue& row) {
  Knob knob{.key = text_in(row, "key"),
            .type = named<KnobType>(row, "type"),
            .words = list_in(row, "words"),
            .semantic_class = named<SemanticClass>(row, "class"),
            .text = text_in(row, "text"),
            .part = named<ForeignPart>(row, "shortens"),
            .excludes = list_in(row, "excludes"),
            .again_beside = list_in(row, "again_beside")};
  if (knob.type == KnobType::kNumber) {
    knob.least = row.at("least", kTable).as_integer(kTable);
    knob.most = row.at("most", kTable).as_integer(kTable);
  }
  if (const JsonValue* other = row.find("tried_with")) knob.tried_with = other->as_string(kTable);
  if (const JsonValue* costs = row.find("costs_first_steps"))
    knob.costs_first_steps = costs->as_bool(kTable);
  if (const JsonValue* needs = row.find("needs_own_start"))
    knob.needs_own_start = needs->as_bool(kTable);
  if (const JsonValue* times = row.find("times_saves")) knob.times_saves = times->as_bool(kTable);
  return knob;
}

struct KnobTable {
  std::vector<Knob> knobs{};
  std::vector<std::string> trials{};
};

KnobTable read_table() {
  const JsonValue json = parse_json(attach::shim_file(kTable), kTable);
  KnobTable table{.trials = list_in(json, "trials")};
  for (const JsonValue& row : json.at("knobs", kTable).as_array(kTable))
    table.knobs.push_back(read_knob(row));
  return table;
}

const KnobTable& table() {
  static const KnobTable made = read_table();
  return made;
}

}  // namespace

std::span<const Knob> knobs() { return table().knobs; }

const Knob* find_knob(std::string_view key) {
  const auto found = std::ranges::find(table().knobs, key, &Knob::key);
  return found == table().knobs.end() ? nullptr : &*found;
}

std::span<const std::string> trial_order() { return table().trials; }

}  // namespace ridge
