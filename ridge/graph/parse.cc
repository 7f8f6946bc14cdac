// The parsing half of text.h. Two steps: lines to statements, which knows no ops, then statements
// to a graph.
#include <charconv>
#include <functional>
#include <unordered_map>

#include "ridge/graph/fields.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"

namespace ridge {
namespace {

struct Place {
  int line = 0;
  int column = 0;
};

struct Reference {
  int node = 0;
  int index = 0;
  Place place;
};

struct NodeStatement {
  int id = 0;
  std::string op;
  std::vector<Reference> inputs;
  std::vector<std::pair<std::string, std::string>> fields;
  std::vector<std::string> types;
  std::string site;
  Place place;
};

struct OutputStatement {
  std::string name;
  Reference value;
  std::string updates;
  Place place;
};

struct Statements {
  std::string name;
  Binding binding;
  std::vector<NodeStatement> nodes;
  std::vector<OutputStatement> outputs;
};

// Reads the tokens of one line.
class LineReader {
 public:
  LineReader(std::string_view source, std::string_view line, int number)
      : source_(source), line_(line), number_(number) {
    skip_space();
  }

  Place place() const { return {number_, static_cast<int>(at_) + 1}; }
  bool done() const { return at_ == line_.size() || line_[at_] == '#'; }

  [[noreturn]] void fail(std::string_view expected) const {
    const std::string_view rest = line_.substr(at_, 20);
    throw UserError(fmt::format("{}:{}:{}: got '{}', expected {}",
                                source_,
                                number_,
                                at_ + 1,
                                rest.empty() ? "end of line" : rest,
                                expected));
  }

  bool take(std::string_view token) {
    if (!line_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    skip_space();
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("'{}'", token));
  }

  std::string word() {
    const size_t begin = at_;
    while (at_ < line_.size() && is_word(line_[at_])) ++at_;
    if (at_ == begin) fail("a name");
    return taken(begin);
  }

  int64_t integer() {
    int64_t value = 0;
    const char* begin = line_.data() + at_;
    const auto [end, error] = std::from_chars(begin, line_.data() + line_.size(), value);
    if (error != std::errc()) fail("an integer");
    at_ += static_cast<size_t>(end - begin);
    skip_space();
    return value;
  }

  // A quoted string, with its quotes.
  std::string raw_string() {
    const size_t begin = at_;
    if (at_ == line_.size() || line_[at_] != '"') fail("a quoted string");
    for (++at_; at_ < line_.size() && line_[at_] != '"'; ++at_)
      if (line_[at_] == '\\') ++at_;
    if (at_ >= line_.size()) {
      at_ = begin;
      fail("a closing quote");
    }
    ++at_;
    return taken(begin);
  }

  std::string string() {
    const Place start = place();
    const std::string raw = raw_string();
    try {
      return unquoted(raw);
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}:{}:{}: {}", source_, start.line, start.column, error.what()));
    }
  }

  // A field's value or a type: a string, a list in brackets, or anything up to a separator.
  std::string raw_value() {
    if (at_ < line_.size() && line_[at_] == '"') return raw_string();
    const size_t begin = at_;
    int depth = 0;
    for (; at_ < line_.size(); ++at_) {
      const char c = line_[at_];
      if (c == '[') ++depth;
      if (c == ']') --depth;
      if (depth == 0 && (c == ',' || c == '}' || c == ' ')) break;
    }
    if (at_ == begin) fail("a value");
    return taken(begin);
  }

 private:
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  void skip_space() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r'))
      ++at_;
  }
  std::string taken(size_t begin) {
    std::string text(line_.substr(begin, at_ - begin));
    skip_space();
    return text;
  }

  std::string_view source_, line_;
  int number_;
  size_t at_ = 0;
};

Reference read_reference(LineReader& in) {
  Reference reference;
  reference.place = in.place();
  in.expect("%");
  const int64_t node = in.integer();
  const int64_t index = in.take(".") ? in.integer() : 0;
  if (node < 0 || node > 1 << 30 || index < 0 || index > 1 << 30) in.fail("a smaller value number");
  reference.node = static_cast<int>(node);
  reference.index = static_cast<int>(index);
  return reference;
}

NodeStatement read_node(LineReader& in) {
  NodeStatement node;
  node.place = in.place();
  node.id = read_reference(in).node;
  in.expect("=");
  node.op = in.word();
  in.expect("(");
  while (!in.take(")")) {
    if (!node.inputs.empty()) in.expect(",");
    node.inputs.push_back(read_reference(in));
  }
  if (in.take("{")) {
    while (!in.take("}")) {
      if (!node.fields.empty()) in.expect(",");
      std::string name = in.word();
      in.expect("=");
      node.fields.emplace_back(std::move(name), in.raw_value());
    }
  }
  in.expect(":");
  do node.types.push_back(in.raw_value());
  while (in.take(","));
  in.expect("@");
  node.site = in.string();
  return node;
}

OutputStatement read_output(LineReader& in) {
  OutputStatement output;
  output.place = in.place();
  output.name = in.string();
  in.expect("=");
  output.value = read_reference(in);
  if (in.take("updates")) output.updates = in.string();
  return output;
}

Statements read_statements(std::string_view source, std::string_view text) {
  Statements statements;
  bool has_header = false;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    LineReader in(source, text.substr(0, end), number);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (in.done()) continue;
    if (!has_header) {
      in.expect("ridge.graph/1");
      statements.name = in.string();
      has_header = true;
    } else if (in.take("dim")) {
      const std::string name = in.string();
      in.expect("=");
      statements.binding[name] = in.integer();
    } else if (in.take("output")) {
      statements.outputs.push_back(read_output(in));
    } else {
      statements.nodes.push_back(read_node(in));
    }
    if (!in.done()) in.fail("end of line");
  }
  check(has_header, "{}:1:1: empty, expected 'ridge.graph/1 \"NAME\"'", source);
  return statements;
}

class GraphBuilder {
 public:
  GraphBuilder(std::string_view source, const Statements& statements)
      : source_(source), statements_(statements), graph_(statements.name) {}

  Graph build() {
    graph_.set_binding(statements_.binding);
    for (size_t i = 0; i < statements_.nodes.size(); ++i) {
      const NodeStatement& node = statements_.nodes[i];
      if (!positions_.emplace(node.id, i).second)
        fail(node.place, fmt::format("%{} is defined twice", node.id), node.site);
    }
    for (const NodeStatement& node : statements_.nodes) add_node(node);
    for (const OutputStatement& output : statements_.outputs) add_output(output);
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(Place place,
                         std::string_view message,
                         std::string_view site = {},
                         std::string fix = {}) const {
    throw UserError(fmt::format("{}:{}:{}: {}{}",
                                source_,
                                place.line,
                                place.column,
                                message,
                                site.empty() ? "" : fmt::format(", at site '{}'", site)),
                    std::move(fix));
  }

  Value resolve(const Reference& reference, size_t before, std::string_view site) const {
    const auto found = positions_.find(reference.node);
    if (found == positions_.end())
      fail(reference.place, fmt::format("%{} is not defined", reference.node), site);
    if (found->second >= before) fail_forward(reference, before, site);
    Node* node = graph_.nodes()[found->second].get();
    if (static_cast<size_t>(reference.index) >= node->outputs.size())
      fail(reference.place,
           fmt::format("%{} has {} results", reference.node, node->outputs.size()),
           site);
    return {node, reference.index};
  }

  // Tells a cycle, which no order of the lines would mend, from a definition that comes too late.
  [[noreturn]] void fail_forward(const Reference& reference,
                                 size_t user,
                                 std::string_view site) const {
    const int user_id = statements_.nodes[user].id;
    std::vector<int> path{reference.node};
    std::unordered_map<int, int> reached_from{{reference.node, -1}};
    for (size_t i = 0; i < path.size() && path[i] != user_id; ++i) {
      const auto position = positions_.find(path[i]);
      if (position == positions_.end()) continue;
      for (const Reference& input : statements_.nodes[position->second].inputs)
        if (reached_from.emplace(input.node, path[i]).second) path.push_back(input.node);
    }
    if (!reached_from.contains(user_id))
      fail(reference.place,
           fmt::format("%{} is used before the line that defines it", reference.node),
           site);
    std::string cycle = fmt::format("%{}", user_id);
    for (int id = reached_from.at(user_id), steps = 0; id != -1 && steps < 8; ++steps) {
      cycle += fmt::format(" -> %{}", id);
      id = reached_from.at(id);
    }
    fail(reference.place, fmt::format("a cycle: {} -> %{}", cycle, user_id), site);
  }

  void add_node(const NodeStatement& statement) {
    const size_t position = graph_.nodes().size();
    std::vector<Value> inputs;
    for (const Reference& reference : statement.inputs)
      inputs.push_back(resolve(reference, position, statement.site));
    Node* node = nullptr;
    try {
      std::shared_ptr<Op> op = registry().create(statement.op);
      set_fields(*op, statement.fields);
      const auto* input = dynamic_cast<const Input*>(op.get());
      check(input == nullptr || graph_inputs_.emplace(input->input_name, position).second,
            "two inputs are named {}",
            input == nullptr ? "" : quoted_text(input->input_name));
      const auto [first, is_new] = sites_.emplace(statement.site, position);
      check(is_new || equal(*graph_.nodes()[first->second]->op, *op),
            "two different nodes have one site");
      node = &graph_.add(std::move(op), std::move(inputs), Site{statement.site});
    } catch (const UserError& error) {
      // Errors of Graph::add name the site already.
      const bool has_site = error.message().find(", at site '") != std::string::npos;
      fail(statement.place, error.message(), has_site ? "" : statement.site, error.fix());
    }
    std::vector<std::string> types;
    for (const TensorType& type : node->outputs) types.push_back(to_string(type));
    if (types != statement.types)
      fail(
          statement.place,
          fmt::format(
              "the type does not fit; got {}, expected {}", joined(statement.types), joined(types)),
          statement.site);
  }

  static std::string joined(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text.substr(0, 60);
    return all;
  }

  void add_output(const OutputStatement& output) {
    const Value value = resolve(output.value, statements_.nodes.size(), {});
    try {
      graph_.add_output(output.name, value, output.updates);
    } catch (const UserError& error) {
      fail(output.place, error.message(), {}, error.fix());
    }
  }

  std::string_view source_;
  const Statements& statements_;
  Graph graph_;
  std::unordered_map<int, size_t> positions_;  ///< By the number in the text.
  std::unordered_map<std::string, size_t> graph_inputs_, sites_;
};

}  // namespace

Graph parse_graph(std::string_view text, std::string_view source) {
  const Statements statements = read_statements(source, text);
  return GraphBuilder(source, statements).build();
}

}  // namespace ridge
