#include "ridge/cli/inspect/inspect.h"

#include "ridge/base/cpu/parallel.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/common/config_options.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/inspect/capture_report.h"
#include "ridge/cli/inspect/model_facts.h"
#include "ridge/cli/inspect/op_table.h"
#include "ridge/cli/inspect/program_facts.h"
#include "ridge/graph/batch_flow.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/summary.h"
#include "ridge/graph/text.h"
#include "ridge/graph/verify.h"
#include "ridge/import/aten/capture.h"
#include "ridge/io/file.h"

namespace ridge {
namespace {

std::string_view kind_name(BatchFlow::Kind kind) {
  constexpr std::string_view kNames[] = {"none", "split", "sum", "mixed"};
  return kNames[static_cast<size_t>(kind)];
}

const BatchFlow& flow_of(const BatchReport& report, const Value& value) {
  return report.flows[static_cast<size_t>(value.node->id)][static_cast<size_t>(value.index)];
}

std::string text_report(const Graph& graph, const InspectOptions& options) {
  const GraphSummary summary = summarize(graph);
  const BatchReport batch = analyze_batch(graph);
  std::string text = fmt::format("graph {}\n", graph.name());
  for (const auto& [name, size] : graph.binding()) text += fmt::format("  {} = {}\n", name, size);
  text += "\ninputs\n";
  for (const Node* node : graph.inputs()) {
    const auto& input = node->op_as<Input>();
    text += fmt::format("  {:<24} {}{}\n",
                        input.input_name,
                        to_string(node->outputs[0]),
                        input.batch < 0 ? "" : fmt::format(", batch on axis {}", input.batch));
  }
  text += "\noutputs\n";
  for (const Output& output : graph.outputs()) {
    text += fmt::format("  {:<24} {}", output.name, to_string(output.value.type()));
    if (!output.updates.empty()) text += fmt::format(", updates {}", output.updates);
    text += "\n";
  }
  text += op_table(summary.ops, summary.total, graph.nodes().size());
  text += fmt::format("\nstate {}B of {}B inputs\n",
                      scaled(static_cast<double>(summary.updated_bytes)),
                      scaled(static_cast<double>(summary.input_bytes)));
  text += batch.separable ? "micro-batches: separable, as far as one binding shows\n"
                          : fmt::format("micro-batches: not separable; {}\n", batch.reason);
  if (options.nodes) text += "\n" + print(graph);
  return text;
}

void write_outputs(JsonWriter& json, const Graph& graph, const BatchReport& batch) {
  json.key("outputs").begin_array();
  for (const Output& output : graph.outputs()) {
    json.begin_object();
    json.field("name", output.name).field("type", to_string(output.value.type()));
    json.field("updates", output.updates);
    json.field("batch", kind_name(flow_of(batch, output.value).kind));
    json.end_object();
  }
  json.end_array();
}

std::string json_report(const Graph& graph, const InspectOptions& options) {
  const GraphSummary summary = summarize(graph);
  const BatchReport batch = analyze_batch(graph);
  std::string text;
  JsonWriter json(text);
  json.begin_object()
      .field("schema", "ridge.inspect/1")
      .field("kind", "graph")
      .field("graph", graph.name());
  json.key("dims").begin_object();
  for (const auto& [name, size] : graph.binding()) json.field(name, size);
  json.end_object();
  json.key("inputs").begin_array();
  for (const Node* node : graph.inputs()) {
    const auto& input = node->op_as<Input>();
    json.begin_object();
    json.field("name", input.input_name).field("type", to_string(node->outputs[0]));
    json.field("batch_axis", input.batch);
    json.end_object();
  }
  json.end_array();
  write_outputs(json, graph, batch);
  write_ops(json, summary.ops);
  json.field("nodes", graph.nodes().size());
  json.field("flops", summary.total.flops).field("bytes", summary.total.bytes);
  json.field("input_bytes", summary.input_bytes).field("state_bytes", summary.updated_bytes);
  json.field("separable", batch.separable).field("not_separable_because", batch.reason);
  if (options.nodes) json.field("text", print(graph));
  json.end_object().finish();
  return text + "\n";
}

std::string inspect_graph(const InspectOptions& options) {
  check(options.set.empty() && options.device.empty() && options.recipe.empty() && !options.plan,
        "'{}' is a graph: --set, --device, --recipe and --plan are for configurations",
        options.file);
  const Graph graph = parse_graph(read_file(options.file), options.file);
  verify(graph);
  return options.json ? json_report(graph, options) : text_report(graph, options);
}

std::string inspect_config(const InspectOptions& options) {
  const LoadedConfig loaded = load_config_options({.file = options.file,
                                                   .recipe = options.recipe,
                                                   .device = options.device,
                                                   .set = options.set});
  apply_threads();
  Tuning tuning(loaded.config.train.device, options.plan);
  const ProgramFacts facts = inspect_program(loaded.config, tuning);
  if (!tuning.note().empty()) write_note(tuning.note());
  for (const std::string& note : facts.notes) write_note(note);
  return options.json ? program_json(facts, options) : program_text(facts, options);
}

std::string inspect_onnx(const InspectOptions& options) {
  check(options.recipe.empty(),
        "'{}' is an ONNX model, which no recipe is for; leave out --recipe",
        options.file);
  const ModelFacts facts = inspect_model(options);
  for (const std::string& note : facts.notes) write_note(note);
  for (const std::string& name : facts.assumed)
    write_note(
        fmt::format("dimension '{0}' has no size, and is taken as 1; give --dim {0}=SIZE", name));
  return options.json ? model_json(facts, options) : model_text(facts, options);
}

bool is_config(const std::string& path, const std::string& text) {
  if (text.starts_with("ridge.graph/")) return false;
  try {
    Settings scratch;
    load_config(text, path, {}, scratch);
    return true;
  } catch (const UserError&) {
    return false;  // as a graph it gets an error that says what a graph is
  }
}

}  // namespace

std::string inspect(const InspectOptions& options) {
  if (is_onnx_file(options.file)) return inspect_onnx(options);
  check(options.dims.empty(), "'{}' is no ONNX model: --dim is for those alone", options.file);
  if (options.file.ends_with(".toml")) return inspect_config(options);
  const std::string text = read_file(options.file);
  if (aten::is_capture(text)) return capture_report(text, options);
  return is_config(options.file, text) ? inspect_config(options) : inspect_graph(options);
}

}  // namespace ridge
