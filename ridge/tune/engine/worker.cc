#include "ridge/tune/engine/worker.h"

#include <algorithm>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/base/json_fields.h"
#include "ridge/proof/trial_record.h"

namespace ridge {
namespace {

constexpr const char* kSource = "request";

constexpr int64_t kMostTraced = 100;

void write_block(JsonWriter& json, const Block& block, int64_t measured_bytes) {
  json.key("block").begin_object();
  Block::fields(block, FieldWriter(json));
  json.field("measured_bytes", measured_bytes).end_object();
}

GuardRequest read_guard(const JsonValue& request) {
  const auto text = [&](const char* key) { return request.at(key, kSource).as_string(key); };
  const auto semantic_class = parse_name<SemanticClass>(text("class"));
  check(semantic_class.has_value(), "unknown class '{}'", text("class"));
  return {.reference = text("reference"),
          .candidate = text("guard"),
          .semantic_class = *semantic_class,
          .most_steps = request.at("most_steps", kSource).as_integer("most_steps")};
}

StepKind kind_of(const std::string& name) {
  if (const auto kind = parse_name<StepKind>(name)) return *kind;
  throw UserError(fmt::format("unknown kind of steps '{}'", name));
}

class Server {
 public:
  void answer(const JsonValue& request, JsonWriter& json) {
    if (const JsonValue* config = request.find("open")) {
      variant_ = std::make_unique<EngineVariant>(config->as_string("open"),
                                                 request.at("epoch", kSource).as_integer("epoch"));
      return FieldWriter(json)("facts", variant_->facts());
    }
    if (request.find("guard") != nullptr)
      return FieldWriter(json)("guard", guard_configs(read_guard(request)));
    check(variant_ != nullptr, "no variant is open");
    if (const JsonValue* steps = request.find("run")) {
      const StepKind kind = kind_of(request.at("kind", kSource).as_string("kind"));
      const Block block = variant_->run(steps->as_integer("run"), kind);
      return write_block(json, block, variant_->measured_bytes());
    }
    if (request.find("rewind") != nullptr) {
      variant_->rewind();
      json.field("rewound", true);
      return;
    }
    if (request.find("fewest_parts") != nullptr) {
      json.field("fewest_parts", variant_->fewest_parts());
      return;
    }
    if (const JsonValue* steps = request.find("timeline")) {
      const int64_t count = steps->as_integer("timeline");
      check(
          count >= 1 && count <= kMostTraced, "{} steps to trace: at most {}", count, kMostTraced);
      return FieldWriter(json)("timeline", variant_->timeline(count));
    }
    request.at("hash", kSource);
    json.field("hash", variant_->state_hash());
  }

 private:
  std::unique_ptr<EngineVariant> variant_;
};

}  // namespace

void serve_variant(std::istream& in, std::ostream& out) {
  Server server;
  serve_requests(
      in, out, [&](const JsonValue& request, JsonWriter& json) { server.answer(request, json); });
}

}  // namespace ridge
