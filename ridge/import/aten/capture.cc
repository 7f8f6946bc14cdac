#include "ridge/import/aten/capture.h"

#include "ridge/base/error.h"
#include "ridge/io/json.h"

namespace ridge::aten {
namespace {

constexpr std::string_view kBegin = R"({"format":"ridge.capture/1","graphs":[)";

CapturedGraph graph_of(const JsonValue& value, const std::string& where) {
  CapturedGraph graph{value.at("kind", where).as_string(where),
                      value.at("torch", where).as_string(where)};
  check(graph.kind == "forward" || graph.kind == "backward" || graph.kind == "inference",
        "{}: there is no kind '{}'",
        where,
        graph.kind);
  for (const JsonValue& each : value.at("left", where).as_array(where)) {
    const auto& parts = each.as_array(where);
    check(parts.size() == 3, "{}: what is left has {} parts, not 3", where, parts.size());
    graph.left.push_back(
        {parts[0].as_string(where), parts[1].as_integer(where), parts[2].as_string(where)});
  }
  for (const JsonValue& each : value.at("programs", where).as_array(where)) try {
      graph.programs.push_back(read_aten_graph(each));
    } catch (const OutOfMemory&) {
      throw;
    } catch (const UserError& error) {
      throw UserError(
          fmt::format("{}, program {}: {}", where, graph.programs.size(), error.what()));
    }
  return graph;
}

}  // namespace

bool is_capture(std::string_view text) { return text.starts_with(kBegin); }

std::string capture_of(const std::vector<std::string>& graphs) {
  std::string text(kBegin);
  for (const std::string& graph : graphs) text += (&graph == graphs.data() ? "\n" : ",\n") + graph;
  return text + "\n]}\n";
}

std::vector<CapturedGraph> parse_capture(std::string_view text, std::string_view source) {
  const JsonValue root = parse_json(text, source);
  check(is_capture(text), "{}: it does not begin as ridge.capture/1 does", source);
  std::vector<CapturedGraph> graphs;
  for (const JsonValue& each : root.at("graphs", source).as_array(source))
    graphs.push_back(graph_of(each, fmt::format("{}: graph {}", source, graphs.size())));
  return graphs;
}

}  // namespace ridge::aten
