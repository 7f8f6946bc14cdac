#include "ridge/cli/inspect/capture_report.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "ridge/base/html/markup.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/inspect/op_table.h"
#include "ridge/graph/summary.h"
#include "ridge/graph/text.h"
#include "ridge/import/aten/capture.h"
#include "ridge/import/aten/import.h"

namespace ridge {
namespace {

struct GraphFacts {
  std::string kind, torch;
  std::vector<aten::CapturedGraph::Left> left;
  std::vector<Graph> programs;
  std::vector<OpSummary> ops = {};
  Cost total = {};
  size_t nodes = 0;
};

void add(GraphFacts& facts, Graph graph) {
  const GraphSummary summary = summarize(graph);
  for (const OpSummary& op : summary.ops) {
    auto at = std::ranges::find(facts.ops, op.op, &OpSummary::op);
    if (at == facts.ops.end()) at = facts.ops.insert(at, {op.op, 0, {}});
    at->nodes += op.nodes;
    at->cost.flops += op.cost.flops;
    at->cost.bytes += op.cost.bytes;
  }
  facts.total.flops += summary.total.flops;
  facts.total.bytes += summary.total.bytes;
  facts.nodes += graph.nodes().size();
  facts.programs.push_back(std::move(graph));
}

std::vector<GraphFacts> facts_of(std::string_view text, const std::string& file) {
  std::vector<GraphFacts> all;
  for (aten::CapturedGraph& captured : aten::parse_capture(text, file)) {
    GraphFacts facts{captured.kind, captured.torch, std::move(captured.left), {}};
    for (const aten::AtenGraph& program : captured.programs) try {
        add(facts, std::move(aten::import_graph(program, {}).program.entries.at(0)));
      } catch (const OutOfMemory&) {
        throw;
      } catch (const UserError& error) {
        throw UserError(fmt::format(
            "{}: graph {}, program {}: {}", file, all.size(), facts.programs.size(), error.what()));
      }
    std::ranges::sort(facts.ops, [](const OpSummary& a, const OpSummary& b) {
      return std::tuple(b.cost.flops, b.cost.bytes, a.op) <
             std::tuple(a.cost.flops, a.cost.bytes, b.op);
    });
    all.push_back(std::move(facts));
  }
  return all;
}

std::string text_of(const std::vector<GraphFacts>& all, const InspectOptions& options) {
  std::string text = fmt::format("{} graphs of torch.compile\n", all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const GraphFacts& facts = all[i];
    text += fmt::format("\ngraph {}: {}, {} programs, torch {}\n",
                        i,
                        facts.kind,
                        facts.programs.size(),
                        plain_line(facts.torch));
    text += op_table(facts.ops, facts.total, facts.nodes);
    for (const auto& [op, count, reason] : facts.left)
      text +=
          fmt::format("left to PyTorch: {} {}: {}\n", count, plain_line(op), plain_line(reason));
    if (options.nodes)
      for (const Graph& program : facts.programs) text += "\n" + print(program);
  }
  return text;
}

std::string json_of(const std::vector<GraphFacts>& all, const InspectOptions& options) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.inspect/1").field("kind", "capture");
  json.key("graphs").begin_array();
  for (const GraphFacts& facts : all) {
    json.begin_object().field("kind", facts.kind).field("torch", facts.torch);
    json.field("programs", facts.programs.size()).field("nodes", facts.nodes);
    json.field("flops", facts.total.flops).field("bytes", facts.total.bytes);
    write_ops(json, facts.ops);
    json.key("left").begin_array();
    for (const auto& [op, count, reason] : facts.left)
      json.begin_object()
          .field("op", op)
          .field("count", count)
          .field("reason", reason)
          .end_object();
    json.end_array();
    if (options.nodes) {
      json.key("texts").begin_array();
      for (const Graph& program : facts.programs) json.value(print(program));
      json.end_array();
    }
    json.end_object();
  }
  json.end_array().end_object().finish();
  return text + "\n";
}

}  // namespace

std::string capture_report(std::string_view text, const InspectOptions& options) {
  check(options.set.empty() && options.device.empty() && options.recipe.empty() && !options.plan,
        "'{}' is a capture: --set, --device, --recipe and --plan are for configurations",
        options.file);
  const std::vector<GraphFacts> all = facts_of(text, options.file);
  return options.json ? json_of(all, options) : text_of(all, options);
}

}  // namespace ridge
