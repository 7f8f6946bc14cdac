// Graphs of ATen operators: how they are read, what is refused, and how tensors lie. What operators
// compute is held against PyTorch by tests/python_torch.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ridge/api/aten_program.h"
#include "ridge/graph/text.h"
#include "ridge/import/aten/capture.h"
#include "ridge/import/aten/import.h"

namespace ridge {
namespace {

// A graph with these parts of its text.
std::string graph_of(const std::string& inputs,
                     const std::string& nodes,
                     const std::string& outputs) {
  return R"({"format":"ridge.aten/1","inputs":[)" + inputs + R"(],"nodes":[)" + nodes +
         R"(],"outputs":[)" + outputs + "]}";
}

constexpr const char* kRow = R"(["f32",[3],[1]])";
constexpr const char* kDouble = R"(["mul.Tensor","twice",[{"v":0},2.0],[["f32",[3]]]])";

std::string message_of(const std::string& text) {
  try {
    aten::import_graph(aten::parse_aten_graph(text), {});
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

void run(AtenProgram& program,
         std::span<const void* const> inputs,
         std::span<void* const> outputs) {
  std::vector<std::byte> workspace(program.workspace_bytes() + 64);
  const auto at = reinterpret_cast<uintptr_t>(workspace.data());
  program.run(inputs, outputs, workspace.data() + (64 - at % 64) % 64);
}

TEST(AtenGraph, WritesOverInputs) {
  // x + 1 and y + x are made where x and y lie; what follows them still reads the old ones.
  const std::string two = std::string(kRow) + "," + kRow;
  const std::string nodes = R"(["add.Tensor","x1",[{"v":0},1.0,1],[["f32",[3]]]],)"
                            R"(["add.Tensor","y1",[{"v":1},{"v":0},1],[["f32",[3]]]],)"
                            R"(["cumsum.default","sums",[{"v":0},0,null],[["f32",[3]]]])";
  for (const size_t gap : {0u, 1u}) {
    AtenProgram program(graph_of(two, nodes, "[2,[1],0],[3,[1],1],[4,[1]]"), {nullptr, nullptr});
    alignas(64) float x[4] = {1, 2, 3, 4}, y[4] = {10, 20, 30, 40}, z[3] = {};
    const void* const inputs[] = {x + gap, y + gap};
    void* const outputs[] = {x + gap, y + gap, z};
    run(program, inputs, outputs);
    float sum = 0;
    for (size_t i = 0; i < 3; ++i) {
      const auto old = static_cast<float>(i + gap + 1);
      sum += old;
      EXPECT_EQ(x[i + gap], old + 1);
      EXPECT_EQ(y[i + gap], 11 * old);
      EXPECT_EQ(z[i], sum);
    }
  }
}

TEST(AtenGraph, RefusesToWriteOverInputs) {
  const std::string two = std::string(kRow) + R"(,["f32",[3],[1],"constant"],["f32",[4],[1]])";
  const auto message = [&](const std::string& outputs) {
    return message_of(
        graph_of(two, R"(["mul.Tensor","twice",[{"v":0},2.0],[["f32",[3]]]])", outputs));
  };
  EXPECT_EQ(message("[3,[1],0]"), "");
  EXPECT_EQ(message("[3,[1],7]"), "output 0: no input 7");
  EXPECT_EQ(message("[3,[1],-1]"), "output 0: no input -1");
  for (const char* each : {"[3,[1],1]", "[3,[1],2]", "[3,null,0]"})
    EXPECT_NE(message(each).find("it is not written over input"), std::string::npos) << each;
  EXPECT_EQ(message("[3,[1],0],[3,[1],0]"), "output 1: another output is written over input 0");
}

TEST(AtenCapture, IsReadAgain) {
  const std::string graph = graph_of(kRow, kDouble, "[1,[1]]");
  const std::string head = R"({"kind":"forward","torch":"2.15.0",)";
  const std::string left = R"("left":[["aten.sort.default",2,"it is not supported"]],)";
  const auto text = [&](const std::string& programs) {
    return aten::capture_of({head + left + R"("programs":[)" + programs + "]}"});
  };
  const auto all = aten::parse_capture(text(graph + "," + graph), "file");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].kind, "forward");
  EXPECT_EQ(all[0].left.at(0).count, 2);
  EXPECT_EQ(all[0].programs.at(1).nodes.at(0).name, "twice");
  EXPECT_TRUE(aten::parse_capture(aten::capture_of({}), "file").empty());
  const auto message = [](const std::string& broken) -> std::string {
    try {
      aten::parse_capture(broken, "file");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(R"({"graphs":[]})"), "file: it does not begin as ridge.capture/1 does");
  EXPECT_EQ(message(text(graph + ",3")),
            "file: graph 0, program 1: graph: expected an object, got an integer");
  EXPECT_EQ(
      message(aten::capture_of({R"({"kind":"sideways","torch":"","left":[],"programs":[]})"})),
      "file: graph 0: there is no kind 'sideways'");
  for (size_t cut = 0; cut < text(graph).size() - 1; ++cut)
    EXPECT_NE(message(text(graph).substr(0, cut)), "") << cut;
}

TEST(AtenGraph, RunsWhereTensorsLie) {
  AtenProgram program(graph_of(kRow, kDouble, "[1,[1]]"), {nullptr});
  const std::vector<float> x{1, 2, -3};
  alignas(64) float y[3] = {};
  const void* const inputs[] = {x.data()};
  void* const outputs[] = {y};
  run(program, inputs, outputs);
  EXPECT_EQ(std::vector<float>(y, y + 3), (std::vector<float>{2, 4, -6}));
}

TEST(AtenGraph, ConstantsAreReadAgainByRefresh) {
  alignas(64) float weight[3] = {1, 2, 3}, x[3] = {10, 10, 10}, y[3] = {};
  AtenProgram program(graph_of(R"(["f32",[3],[1]],["f32",[3],[1],"constant"])",
                               R"(["add.Tensor","sum",[{"v":0},{"v":1},1],[["f32",[3]]]])",
                               "[2,[1]]"),
                      {nullptr, weight});
  const void* const inputs[] = {x, nullptr};
  void* const outputs[] = {y};
  run(program, inputs, outputs);
  EXPECT_EQ(y[2], 13);
  EXPECT_FALSE(program.is_stale());
  weight[2] = 7;
  weight[0] = 5;
  EXPECT_TRUE(program.is_stale());
  program.refresh({nullptr, weight});
  run(program, inputs, outputs);
  EXPECT_EQ(y[2], 17);
}

TEST(AtenGraph, SaysWhatIsWrong) {
  const struct {
    std::string text, message;
  } cases[] = {
      {"{}", "format"},
      {R"({"format":"ridge.aten/2","inputs":[],"nodes":[],"outputs":[]})", "ridge.aten/1"},
      {graph_of(R"(["f31",[3],[1]])", "", ""), "no dtype 'f31'"},
      {graph_of(R"(["f32",[0],[1]])", "", ""), "input 0"},
      {graph_of(R"(["f32",[3,2],[1]])", "", ""), "1 strides"},
      {graph_of(R"(["f32",[3,2],[4,1]])", "", ""), "gaps"},
      {graph_of(R"(["f32",[3],[1],"fixed"])", "", ""), "'constant'"},
      {graph_of(kRow, R"(["neg.default","a",[{"v":1}],[["f32",[3]]]])", ""), "no value 1"},
      {graph_of(kRow, R"(["neg.default","a",[{"x":0}],[["f32",[3]]]])", ""), "tagged 'x'"},
      {graph_of(kRow, R"(["neg.default","a",[{"f":"1"}],[["f32",[3]]]])", ""), "number is '1'"},
      {graph_of(kRow, R"(["neg.default","a",[[[[[[]]]]]],[["f32",[3]]]])", ""), "nested"},
      {graph_of(kRow, R"(["nag.default","a",[{"v":0}],[["f32",[3]]]])", ""),
       "node 'a' (nag.default): the operator is not supported"},
      {graph_of(kRow, R"(["neg.default","a",[{"v":0}],[["f32",[4]]]])", ""), "node 'a'"},
      {graph_of(kRow, R"(["neg.default","a",[],[["f32",[3]]]])", ""), "argument 0 is missing"},
      {graph_of(kRow, "", "[1,[1]]"), "no value 1"},
  };
  for (const auto& each : cases) {
    const std::string got = message_of(each.text);
    EXPECT_NE(got.find(each.message), std::string::npos) << each.text << "\n" << got;
  }
}

TEST(AtenGraph, NodesAreRefusedOneByOne) {
  const auto refused =
      aten_refusals(graph_of(kRow,
                             std::string(R"(["nag.default","a",[{"v":0}],[["f32",[3]]]],)") +
                                 R"(["neg.default","b",[{"v":1}],[["f32",[3]]]],)" +
                                 R"(["neg.default","c",[{"v":2}],[["f32",[2]]]],)" +
                                 R"(["exp.default","d",[{"v":3}],[["f32",[2]]]])",
                             "[4,[1]]"));
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_EQ(refused[0].node, 0u);
  EXPECT_EQ(refused[1].node, 2u);
}

TEST(AtenGraph, ImagesStayAsTheyLie) {
  const std::string image = R"(["f32",[2,3,4,5],[60,1,15,3]])";
  const aten::ImportedGraph imported = aten::import_graph(
      aten::parse_aten_graph(
          graph_of(image, R"(["relu.default","r",[{"v":0}],[["f32",[2,3,4,5]]]])", "[1,null]")),
      {});
  EXPECT_EQ(imported.orders[0], (std::vector<int64_t>{0, 2, 3, 1}));
  EXPECT_EQ(print(imported.program.entries[0]).find("transpose"), std::string::npos);
}

}  // namespace
}  // namespace ridge
