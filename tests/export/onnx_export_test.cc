// Models as ONNX: each kind comes back by the importer and gives the same numbers at any sizes,
// with the operators that other programs know; and what is refused.
#include "ridge/export/onnx/onnx_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "ridge/export/onnx/export_table.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/onnx/model_proto.h"
#include "ridge/io/file.h"
#include "ridge/run/compare.h"
#include "tests/export/small_models.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

constexpr double kRounding = 2e-5;

class OnnxExport : public testing::Test {
 protected:
  std::string path(const std::string& name = "model.onnx") const {
    return (folder_ / name).string();
  }
  OnnxExportResult write(const SmallModel& model, const OnnxExportOptions& options = {}) const {
    return export_onnx(*model.source, model.weights(), {{"note", "small"}}, path(), options);
  }
  // Writes a graph, and runs it here and as what was written.
  void expect_the_same(const BuiltSource& source,
                       const std::vector<Binding>& bindings,
                       const OnnxExportOptions& options = {}) const {
    const SmallModel model{.source = std::make_shared<const BuiltSource>(source)};
    export_onnx(source, model.weights(), {}, path(), options);
    ModelSession session(load_model(path()));
    for (const Binding& binding : bindings) {
      const NamedTensors data = data_for(source.inputs(), binding, 3);
      const std::string name = source.outputs()[0].name;
      const Tensor wanted = model.run(data).at(name), got = session.run(data).at(name);
      EXPECT_EQ(to_string(got.type()), to_string(wanted.type()));
      EXPECT_EQ(difference(got, wanted, kRounding), "");
    }
  }
  // The operators of the file, one a node.
  std::vector<std::string> operators() const {
    const MappedFile file(path());
    std::vector<std::string> names;
    for (const onnx::NodeProto& node : onnx::parse_model(file.bytes(), path()).graph.nodes)
      names.push_back(node.op);
    return names;
  }
  int64_t count(const std::string& op) const {
    const std::vector<std::string> all = operators();
    return std::count(all.begin(), all.end(), op);
  }

  TempFolder folder_;
};

TEST_F(OnnxExport, EachKindOfModelComesBack) {
  for (const std::string& name : kSmallModels) {
    SCOPED_TRACE(name);
    const SmallModel model = small_model(name);
    write(model);
    ModelSession session(load_model(path()));
    EXPECT_EQ(session.inputs().size(), 1u);
    EXPECT_EQ(type_text(session.outputs().at(0)).substr(0, 6), "f32[B,");
    std::vector<Binding> bindings{{{"B", 1}}, {{"B", 5}}};
    if (name == "gpt")
      bindings = {{{"B", 1}, {"T", 8}}, {{"B", 3}, {"T", 1}}, {{"B", 2}, {"T", 5}}};
    for (const Binding& binding : bindings) {
      const NamedTensors data = data_for(model.source->inputs(), binding);
      EXPECT_EQ(difference(session.run(data).at("logits"), model.run(data).at("logits"), kRounding),
                "");
    }
  }
}

TEST_F(OnnxExport, WeightsKeepTheirNames) {
  for (const std::string& name : kSmallModels) {
    SCOPED_TRACE(name);
    const SmallModel model = small_model(name);
    write(model);
    const MappedFile file(path());
    std::vector<std::string> names;
    for (const auto& tensor : onnx::parse_model(file.bytes(), path()).graph.initializers)
      if (model.values.contains(tensor.name)) names.push_back(tensor.name);
    EXPECT_EQ(names.size(), model.values.size());
  }
}

// One transpose brings images into ONNX's order, and batch norms and activations are operators that
// other programs put into convolutions.
TEST_F(OnnxExport, ImagesStayInTheOrderOfConvolutions) {
  write(small_model("resnet18 of imagenet"));
  EXPECT_EQ(count("Transpose"), 1);
  EXPECT_EQ(count("Conv"), 20);
  EXPECT_EQ(count("BatchNormalization"), 20);
  EXPECT_THAT(operators(), Contains("MaxPool"));
  EXPECT_THAT(operators(), Not(Contains("Sub")));
  write(small_model("mobilenetv2"));
  EXPECT_EQ(count("Transpose"), 1);
  EXPECT_EQ(count("BatchNormalization"), 52);
  EXPECT_EQ(count("Clip"), 35);
  EXPECT_THAT(operators(), Not(Contains("Where")));
  write(small_model("cnn without norm"));
  EXPECT_EQ(count("Add"), 2 + 1);  // shortcuts, and the bias of the head
}

TEST_F(OnnxExport, AGptIsWrittenOutForAnyLength) {
  write(small_model("gpt"));
  EXPECT_EQ(count("Softmax"), 2);
  EXPECT_EQ(count("Range"), 1) << "one causal mask";
  EXPECT_EQ(count("LayerNormalization"), 5);
  EXPECT_EQ(count("MatMul"), 2 * (4 + 2) + 1);
  const MappedFile file(path());
  const onnx::ModelProto model = onnx::parse_model(file.bytes(), path());
  EXPECT_EQ(model.ir_version, 8);
  EXPECT_EQ(model.opsets.at(""), 17);
  EXPECT_EQ(model.graph.inputs.at(0).dims.at(1).name, "T");
  EXPECT_EQ(model.graph.outputs.at(0).dims.at(0).name, "B");
  EXPECT_THAT(read_file(path()), has("ridge", "note", "small"));
}

TEST_F(OnnxExport, DimensionsMayHaveOneSize) {
  const SmallModel model = small_model("gpt");
  const OnnxExportResult result = write(model, {.sizes = {{"T", 8}}});
  EXPECT_EQ(to_string(result.inputs.at(0)), "x i64[B,8]");
  EXPECT_EQ(to_string(result.outputs.at(0)), "logits f32[B,8,11]");
  ModelSession session(load_model(path()));
  const NamedTensors data = data_for(model.source->inputs(), {{"B", 2}, {"T", 8}});
  EXPECT_EQ(difference(session.run(data).at("logits"), model.run(data).at("logits"), kRounding),
            "");
  EXPECT_THAT(user_error([&] { write(model, {.sizes = {{"L", 8}}}); }), has("no dimension 'L'"));
  EXPECT_THAT(user_error([&] { write(model, {.sizes = {{"T", 9}}}); }), has("at most 8; got 9"));
}

// ---- ops one by one ----

// Elementwise ops, reductions and moves of x, side by side.
Value many_ops(Graph& g, const Binding& binding) {
  const int64_t n = binding.at("B");
  const TensorType type{DType::kF32, {n, 6}};
  const Value x = input(g, "x", type, 0), z = input(g, "z", {DType::kI64, {n, 6}}, 0);
  const Value positive = abs(x) + 0.5, half = x * 0.5;
  const Value row = constant(g, {DType::kF32, {6}}, {1, 2, 3, 4, 5, 6});
  const auto number = [](Value v) { return cast(v, DType::kF32); };
  std::vector<Value> parts{positive,
                           -x,
                           sign(x),
                           exp(x),
                           log(positive),
                           tanh(x),
                           erf(x),
                           sqrt(positive),
                           rsqrt(positive),
                           sigmoid(x),
                           relu(x),
                           relu6(x * 5.0),
                           gelu(x),
                           gelu(x, GeluForm::kTanh),
                           silu(x),
                           softmax(x),
                           log_softmax(x),
                           maximum(x, -half),
                           minimum(x, -half),
                           x / positive,
                           x - row,
                           number(is_finite(log(x - 10.0))),
                           number(z) * x,
                           number(cast(x * 3.0, DType::kI32)),
                           layer_norm(x, row, row * 0.1),
                           rms_norm(x, row)};
  const Value greater = gt(x, half), small = le(x, constant_like(x, 0.7));
  for (const Value v : {greater,
                        small,
                        lt(x, half),
                        ge(x, half),
                        eq(z, constant_like(z, 1)),
                        ne(z, constant_like(z, 1)),
                        logical_and(greater, small),
                        logical_or(greater, small),
                        logical_not(small)})
    parts.push_back(number(v));
  parts.push_back(where(greater, x, constant_like(x, -3.0)));
  parts.push_back(pad(slice(x, 1, 1, 5, 2), {0, 1}, {0, 3}, 2.5));
  parts.push_back(reshape(transpose(reshape(x, {n, 3, 2}), {0, 2, 1}), {n, 6}));
  parts.push_back(broadcast(reduce_sum(x, {1}, true), {n, 6}));
  parts.push_back(broadcast(reshape(reduce_mean(x, {1}), {n, 1}), {n, 6}));
  parts.push_back(x - reduce_max(x, {1}, true));
  parts.push_back(number(broadcast(reshape(argmax(x, 1), {n, 1}), {n, 6})));
  parts.push_back(number(iota(g, {DType::kI32, {n, 6}}, 1)));
  parts.push_back(constant_like(x, 4.0) + broadcast(row, {n, 6}));  // of nothing that is whole
  parts.push_back(gather(reshape(row, {6, 1}) * constant(g, {DType::kF32, {1, 6}}, 2.0),
                         slice(reshape(z, {n * 6}), 0, 0, n)));
  return concat(parts, 1);
}

BuiltSource many_ops_source() {
  Graph probe;
  const int64_t columns = many_ops(probe, {{"B", 2}}).dim(1);
  return {{{"x", DType::kF32, {"B", 6}}, {"z", DType::kI64, {"B", 6}}},
          {"y", DType::kF32, {"B", columns}},
          many_ops};
}

TEST_F(OnnxExport, EachVersionOfOperatorsGivesTheSame) {
  const BuiltSource source = many_ops_source();
  for (int64_t opset = onnx::kOldestWritten; opset <= onnx::kNewestWritten; ++opset) {
    SCOPED_TRACE(opset);
    expect_the_same(source, {{{"B", 1}}, {{"B", 7}}}, {.opset = opset});
    EXPECT_EQ(count("LayerNormalization"), opset >= 17 ? 1 : 0);
    EXPECT_EQ(count("Gelu"), opset >= 20 ? 2 : 0);
    EXPECT_EQ(count("RMSNormalization"), opset >= 23 ? 1 : 0);
  }
}

TEST_F(OnnxExport, ImagesOfEachForm) {
  const auto build = [](Graph& g, const Binding& binding) {
    const int64_t n = binding.at("B");
    const Value x = input(g, "x", {DType::kF32, {n, 9, 8, 4}}, 0);
    std::vector<double> numbers(3 * 2 * 2 * 6);
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = 0.25 * static_cast<double>(i * 7 % 11) - 1;
    const Value w = constant(g, {DType::kF32, {3, 2, 2, 6}}, numbers);
    const WindowFields window{.stride = {2, 1}, .padding = {1, 0, 2, 1}, .dilation = {1, 2}};
    Value y = conv2d(x, w, window, 2);
    const Value row = constant(g, {DType::kF32, {6}}, {1, 2, 3, 4, 5, 6});
    y = relu(y * row) + reduce_mean(y, {1, 2}, true);
    y = y - broadcast(reshape(row, {1, 1, 6}), y.shape());
    PoolFields pool{.kernel = {2, 3}, .window = {.stride = {1, 2}, .padding = {1, 1, 0, 1}}};
    const Value largest = max_pool2d(y, pool);
    const Value all = largest + avg_pool2d(y, pool) - avg_pool2d(y, pool, false);
    return concat({reduce_max(all, {1, 2}), reduce_sum(all, {1, 3})}, 1);
  };
  Graph probe;
  const int64_t columns = build(probe, {{"B", 2}}).dim(1);
  expect_the_same({{{"x", DType::kF32, {"B", 9, 8, 4}}}, {"y", DType::kF32, {"B", columns}}, build},
                  {{{"B", 1}}, {{"B", 3}}});
}

TEST_F(OnnxExport, AttentionOfEachForm) {
  for (const bool causal : {false, true}) {
    const auto build = [causal](Graph& g, const Binding& binding) {
      const int64_t n = binding.at("B"), t = binding.at("T");
      const Value q = input(g, "q", {DType::kF32, {n, 2, t, 4}}, 0);
      const Value k = input(g, "k", {DType::kF32, {n, 2, t, 4}}, 0);
      return attention(q, k, k * 2.0, {.causal = causal});
    };
    const DataSpec q{"q", DType::kF32, {"B", 2, "T", 4}}, k{"k", DType::kF32, {"B", 2, "T", 4}};
    expect_the_same({{q, k}, {"y", DType::kF32, {"B", 2, "T", 4}}, build},
                    {{{"B", 1}, {"T", 1}}, {{"B", 3}, {"T", 6}}});
    EXPECT_EQ(count("Range"), causal ? 1 : 0);
  }
}

TEST_F(OnnxExport, AttentionByToken) {
  const auto build = [](Graph& g, const Binding& binding) {
    const Value q = input(g, "q", {DType::kF32, {binding.at("B"), 5, 2, 4}}, 0);
    return attention(q, q * 0.5, q * 2.0, {.by_token = true});
  };
  expect_the_same({{{"q", DType::kF32, {"B", 5, 2, 4}}}, {"y", DType::kF32, {"B", 5, 2, 4}}, build},
                  {{{"B", 1}}, {{"B", 3}}});
}

// ---- what is refused ----

BuiltSource source_of(DataSpec output, BuiltSource::Build build) {
  return {{{"x", DType::kF32, {"B", 6}}}, std::move(output), std::move(build)};
}

TEST_F(OnnxExport, ListsOpsWithoutACounterpart) {
  const BuiltSource source =
      source_of({"y", DType::kF32, {"B", 6}}, [](Graph& g, const Binding& binding) {
        const Value x = input(g, "x", {DType::kF32, {binding.at("B"), 6}}, 0);
        const Value at = cast(abs(slice(reshape(x, {-1}), 0, 0, 6)), DType::kI64);
        Value y = x;
        for (int i = 0; i < 5; ++i) y = scatter_add(y, at, 1, 6);
        return y + pad(slice(x, 1, 0, 2), {0, 0}, {0, 1}, {0, 3}, 0.0);
      });
  const std::string message =
      user_error([&] { export_onnx(source, SmallModel().weights(), {}, path()); });
  EXPECT_THAT(message,
              has("operators of version 17 have no counterpart of:\n  1 x pad (",
                  "\n  5 x scatter_add (",
                  " and 2 more)"));
  EXPECT_THAT(folder_.names(), ElementsAre());
}

TEST_F(OnnxExport, TellsSizesThatAreNoMultiplesOfADimension) {
  const BuiltSource source =
      source_of({"y", DType::kF32, {"N", 3, 2}}, [](Graph& g, const Binding& binding) {
        const Value x = input(g, "x", {DType::kF32, {binding.at("B"), 6}}, 0);
        const Value more = concat({x, constant(g, {DType::kF32, {1, 6}}, 1.0)}, 0);
        return reshape(more, {-1, 3, 2});
      });
  const auto write = [&](const OnnxExportOptions& options) {
    export_onnx(source, SmallModel().weights(), {}, path(), options);
  };
  EXPECT_THAT(user_error([&] { write({}); }),
              has("no multiple of dimension 'B'", "as in --dim B="));
  write({.sizes = {{"B", 4}}});
  const NamedTensors data = data_for(source.inputs(), {{"B", 4}});
  EXPECT_EQ(ModelSession(load_model(path())).run(data).at("y").type().shape, (Shape{5, 3, 2}));
}

TEST_F(OnnxExport, TellsGraphsThatDependOnASize) {
  const BuiltSource source =
      source_of({"y", DType::kF32, {"B", 6}}, [](Graph& g, const Binding& binding) {
        const Value x = input(g, "x", {DType::kF32, {binding.at("B"), 6}}, 0);
        return binding.at("B") > 12 ? relu(x) : x * static_cast<double>(binding.at("B"));
      });
  EXPECT_THAT(user_error([&] { export_onnx(source, SmallModel().weights(), {}, path()); }),
              has("depends on dimension 'B' in more than sizes", "--dim B="));
}

TEST_F(OnnxExport, RefusesVersionsThatAreNotWritten) {
  write_file_atomically(path(), "old");
  for (const int64_t opset : {12, 24})
    EXPECT_THAT(user_error([&] { write(small_model("mlp"), {.opset = opset}); }),
                has("are not written; those of 13 to 23 are"));
  EXPECT_EQ(read_file(path()), "old");
}

TEST_F(OnnxExport, AFullDiskIsOneError) {
  const SmallModel model = small_model("mlp");
  EXPECT_THAT(user_error([&] { export_onnx(*model.source, model.weights(), {}, "/dev/full"); }),
              has("/dev/full"));
  EXPECT_THAT(user_error([&] {
                export_onnx(*model.source, model.weights(), {}, path("none") + "/model.onnx");
              }),
              has("none"));
  EXPECT_THAT(folder_.names(), ElementsAre());
}

TEST_F(OnnxExport, WeightsMayLieInAFileBesideIt) {
  const SmallModel model = small_model("mlp");
  EXPECT_EQ(write(model).data_file, "");
  const auto whole = std::filesystem::file_size(path());
  const NamedTensors data = data_for(model.source->inputs(), {{"B", 3}});
  const Tensor wanted = ModelSession(load_model(path())).run(data).at("logits");
  const OnnxExportResult result = write(model, {.most_bytes_inside = 1000});
  const std::string data_file = std::filesystem::path(result.data_file).filename().string();
  EXPECT_THAT(data_file, testing::MatchesRegex("model\\.onnx\\.[0-9a-f]{16}\\.data"));
  EXPECT_THAT(folder_.names(), ElementsAre("model.onnx", data_file));
  EXPECT_LT(std::filesystem::file_size(path()), whole - 1000);
  EXPECT_TRUE(ModelSession(load_model(path())).run(data).at("logits").same_bits(wanted));
  std::filesystem::resize_file(result.data_file, 100);
  EXPECT_THAT(user_error([&] { ModelSession(load_model(path())).run(data); }), has(data_file));
}

// Files may have so many bytes here, and writing more is an error.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = ::signal(SIGXFSZ, SIG_IGN);
};

// The data are written before the model, which here is longer and fails.
TEST_F(OnnxExport, AModelThatFailsBehindItsDataLeavesTheOldPair) {
  SmallModel model = small_model("mlp");
  const OnnxExportOptions outside{.most_bytes_inside = 1000};
  const NamedTensors data = data_for(model.source->inputs(), {{"B", 3}});
  const auto run_it = [&] { return ModelSession(load_model(path())).run(data).at("logits"); };
  write(model, outside);
  const auto names = folder_.names();
  const Tensor old = run_it();
  Tensor& weight = model.values.at("layers.0.weight");
  for (int64_t i = 0; i < weight.elements(); ++i) weight.set(i, weight.at(i) + 0.5);
  {
    const FileLimit limit(200'000);
    const std::string note(400'000, 'n');
    EXPECT_THAT(user_error([&] {
                  export_onnx(*model.source, model.weights(), {{"note", note}}, path(), outside);
                }),
                has("cannot write"));
  }
  EXPECT_EQ(folder_.names(), names);
  EXPECT_TRUE(run_it().same_bits(old));
  // One that works leaves nothing of the old pair, nor of an export that was killed.
  write_file_atomically(path("model.onnx.0123456789abcdef.data"), "");
  write_file_atomically(path("model.onnx.mine.data"), "");
  write(model, outside);
  EXPECT_EQ(folder_.names().size(), 3u);
  EXPECT_THAT(folder_.names(), Contains("model.onnx.mine.data"));
  EXPECT_FALSE(run_it().same_bits(old));
  write(model);
  EXPECT_THAT(folder_.names(), ElementsAre("model.onnx", "model.onnx.mine.data"));
}

}  // namespace
}  // namespace ridge::test
