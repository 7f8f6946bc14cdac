// Batch-separability: what the dataflow claims, against running the graph in two halves.
#include "ridge/graph/batch_flow.h"

#include <gtest/gtest.h>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/compare.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using Kind = BatchFlow::Kind;

// A model of any batch, built by a function.
class Model {
 public:
  using Build = std::function<void(Graph&, int64_t batch)>;
  explicit Model(Build build) : build_(std::move(build)) {}
  BatchReport report(int64_t batch = 4) const {
    return analyze_batch([this](int64_t samples) { return graph(samples); }, batch);
  }
  Graph graph(int64_t batch) const {
    Graph made;
    build_(made, batch);
    return made;
  }

 private:
  Build build_;
};

// The tensor for an input: the rows of samples [first, first + B) where it is batched. Element
// values depend on the input's name and the sample alone.
Tensor tensor_for(const Node& node, int64_t first) {
  const auto& op = node.op_as<Input>();
  Tensor tensor(node.outputs[0]);
  if (op.input_name == "rng") {
    const double state[] = {11, 3, static_cast<double>(first)};
    for (int64_t i = 0; i < 3; ++i) tensor.set(i, state[i]);
    return tensor;
  }
  const auto seed = std::hash<std::string>()(op.input_name);
  if (op.batch < 0) {
    Random random(seed);
    for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, random.uniform(-1.0, 1.0));
    return tensor;
  }
  const int64_t batch = op.shape[static_cast<size_t>(op.batch)];
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(op.batch) + 1; i < op.shape.size(); ++i) inner *= op.shape[i];
  std::vector<Random> samples;
  for (int64_t s = 0; s < batch; ++s) samples.emplace_back(seed + static_cast<uint64_t>(first + s));
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    Random& random = samples[static_cast<size_t>(i / inner % batch)];
    tensor.set(
        i,
        is_float(op.dtype) ? random.uniform(-1.0, 1.0) : static_cast<double>(random.integer(0, 3)));
  }
  return tensor;
}

NamedTensors run_part(const Graph& graph, int64_t first, Backend& backend) {
  NamedTensors inputs;
  for (const Node* node : graph.inputs())
    inputs.emplace(node->op_as<Input>().input_name, tensor_for(*node, first));
  return evaluate(graph, backend, inputs);
}

// An output of the whole batch from those of its two halves, joined by the flow.
Tensor join(const Tensor& a, const Tensor& b, const BatchFlow& flow) {
  if (flow.kind == Kind::kNone) return a;
  if (flow.kind == Kind::kSum) {
    Tensor sum(a.type());
    for (int64_t i = 0; i < a.elements(); ++i) sum.set(i, a.at(i) + b.at(i));
    return sum;
  }
  TensorType type = a.type();
  const auto axis = static_cast<size_t>(flow.axis);
  int64_t inner = 1;
  for (size_t i = axis; i < type.shape.size(); ++i) inner *= type.shape[i];
  type.shape[axis] *= 2;
  Tensor both(type);
  for (int64_t i = 0; i < both.elements(); ++i) {
    const int64_t outer = i / (2 * inner), within = i % (2 * inner);
    const Tensor& part = within < inner ? a : b;
    both.set(i, part.at(outer * inner + within % inner));
  }
  return both;
}

// Runs the model whole (B = 4) and in halves (B = 2) and compares every output that is claimed to
// be separable. Returns how many were.
int check_claims(const Model& model) {
  const auto ref = make_backend("ref");
  const BatchReport report = model.report();
  const Graph whole = model.graph(4), half = model.graph(2);
  const NamedTensors all = run_part(whole, 0, *ref);
  const NamedTensors first = run_part(half, 0, *ref), second = run_part(half, 2, *ref);
  int separable = 0;
  for (const Output& output : whole.outputs()) {
    const BatchFlow& flow = report.flows[static_cast<size_t>(output.value.node->id)]
                                        [static_cast<size_t>(output.value.index)];
    if (flow.kind == Kind::kMixed) continue;
    ++separable;
    const std::string& name = output.name;
    const Tensor joined = join(first.at(name), second.at(name), flow);
    EXPECT_EQ(difference(joined, all.at(name), 1e-11), "")
        << "output " << name << " at " << output.value.node->site.name;
  }
  return separable;
}

Value data(Graph& g, Shape shape) { return input(g, "x", {DType::kF64, std::move(shape)}, 0); }
Value weight(Graph& g, std::string name, Shape shape) {
  return input(g, std::move(name), {DType::kF64, std::move(shape)});
}

// ---- known models ----

// A transformer block with dropout, its loss summed and its targets counted, with all gradients.
void transformer(Graph& g, int64_t batch) {
  const int64_t t = 3, d = 4, heads = 2, vocabulary = 7;
  const Value ids = input(g, "ids", {DType::kI64, {batch, t}}, 0);
  const Value targets = input(g, "targets", {DType::kI64, {batch, t}}, 0);
  const Value rng = input(g, "rng", {DType::kI64, {3}});
  const Value table = weight(g, "table", {vocabulary, d}), places = weight(g, "places", {t, d});
  const Value gamma = weight(g, "gamma", {d}), beta = weight(g, "beta", {d});
  const Value w = weight(g, "w", {d, 3 * d});
  Value x = dropout(embedding(table, ids) + places, rng, 0.2, batch);
  const Value h = matmul(layer_norm(x, gamma, beta), w);
  // Both forms of attention, the separate one without the causal mask.
  std::vector<Value> qkv;
  for (int64_t i = 0; i < 3; ++i)
    qkv.push_back(transpose(reshape(slice(h, 2, i * d, (i + 1) * d), {batch, t, heads, d / heads}),
                            {0, 2, 1, 3}));
  const Value attended = attention(qkv[0], qkv[1], qkv[2]);
  x = x + reshape(transpose(attended, {0, 2, 1, 3}), {batch, t, d});
  x = x + packed_attention(h, heads, {.causal = true});
  const Value logits = matmul(gelu(x), table, false, true);
  const Value loss = reduce_sum(cross_entropy(logits, targets, {.ignore_index = 2}));
  g.add_output("loss", loss);
  g.add_output("count", count_targets(targets, DType::kF64, 2));
  g.add_output("logits", logits);
  const Value wrt[] = {table, places, gamma, beta, w};
  int i = 0;
  for (Value gradient : gradients(loss, wrt)) g.add_output(fmt::format("g{}", i++), gradient);
}

TEST(BatchFlow, TransformerIsSeparable) {
  const Model model(transformer);
  const BatchReport report = model.report();
  EXPECT_TRUE(report.separable) << report.reason;
  EXPECT_EQ(check_claims(model), 8);
}

void convolution_net(Graph& g, int64_t batch, bool batch_normed) {
  const Value x = data(g, {batch, 6, 6, 2});
  const Value w = weight(g, "w", {3, 3, 2, 4});
  const Value gamma = weight(g, "gamma", {4}), beta = weight(g, "beta", {4});
  Value h;
  {
    const SiteScope scope(g, "stem");
    h = conv2d(x, w, {{1, 1}, {1, 1, 1, 1}, {1, 1}});
    h = batch_normed ? batch_norm(h, gamma, beta).y : layer_norm(h, gamma, beta);
  }
  h = global_avg_pool(max_pool2d(relu(h), {{2, 2}, {{2, 2}, {0, 0, 0, 0}, {1, 1}}}));
  const Value loss = reduce_sum(h * h);
  g.add_output("loss", loss);
  const Value wrt[] = {w, gamma};
  const auto gradient = gradients(loss, wrt);
  g.add_output("dw", gradient[0]);
  g.add_output("dgamma", gradient[1]);
}

TEST(BatchFlow, ConvolutionIsSeparableAndBatchNormIsNot) {
  const Model plain([](Graph& g, int64_t b) { convolution_net(g, b, false); });
  EXPECT_TRUE(plain.report().separable) << plain.report().reason;
  EXPECT_EQ(check_claims(plain), 3);
  const Model normed([](Graph& g, int64_t b) { convolution_net(g, b, true); });
  EXPECT_FALSE(normed.report().separable);
  EXPECT_EQ(normed.report().reason,
            "output 'loss': the statistics run over the batch, at site 'stem:batch_norm.0'");
}

struct Refused {
  std::string_view name;
  void (*build)(Graph&, int64_t);
  std::string_view reason;
};

class NotSeparable : public ::testing::TestWithParam<Refused> {};

TEST_P(NotSeparable, SaysWhereAndWhy) {
  const BatchReport report = Model(GetParam().build).report();
  EXPECT_FALSE(report.separable);
  EXPECT_EQ(report.reason, GetParam().reason);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    NotSeparable,
    ::testing::Values(
        Refused{"MeanLoss",
                [](Graph& g, int64_t b) { g.add_output("y", reduce_mean(data(g, {b, 3}))); },
                "output 'y': the mean runs over the batch, at site ':reduce_mean.0'"},
        Refused{"ConstantFromBatchSize",
                [](Graph& g, int64_t b) {
                  g.add_output("y", reduce_sum(data(g, {b, 3})) * (1.0 / static_cast<double>(b)));
                },
                "output 'y': the value depends on the batch size, at site ':constant.0'"},
        Refused{"CountOfBatch",
                [](Graph& g, int64_t b) {
                  const Value x = data(g, {b, 3});
                  const Value sum = reduce_sum(x);
                  g.add_output("y", sum / reduce_sum(constant_like(x, 1.0)));
                },
                "output 'y': the value depends on the batch size, at site ':reduce_sum.1'"},
        Refused{"SumOfProducts",
                [](Graph& g, int64_t b) {
                  const Value sum = reduce_sum(data(g, {b, 3}), {0});
                  g.add_output("y", sum * sum);
                },
                "output 'y': a sum over samples enters an op that is not linear in it, at site "
                "':mul.0'"},
        Refused{"BiasOnSum",
                [](Graph& g, int64_t b) {
                  g.add_output("y", reduce_sum(data(g, {b, 3}), {0}) + weight(g, "w", {3}));
                },
                "output 'y': a sum over samples enters an op that is not linear in it, at site "
                "':add.0'"},
        Refused{"SoftmaxOverBatch",
                [](Graph& g, int64_t b) { g.add_output("y", softmax(data(g, {b, 3}), 0)); },
                "output 'y': the row runs over the batch, at site ':softmax.0'"},
        Refused{"PositionInBatch",
                [](Graph& g, int64_t b) {
                  const Value x = data(g, {b, 3});
                  g.add_output("y", x + iota(g, x.type(), 0));
                },
                "output 'y': an input that is not batched differs along the batch, at site "
                "':add.0'"},
        Refused{"Gram",
                [](Graph& g, int64_t b) {
                  const Value x = data(g, {b, 3});
                  g.add_output("y", matmul(x, x, false, true));
                },
                "output 'y': the product combines samples, at site ':matmul.0'"},
        Refused{"FirstSample",
                [](Graph& g, int64_t b) { g.add_output("y", slice(data(g, {b, 3}), 0, 0, 1)); },
                "output 'y': the slice takes some of the samples, at site ':slice.0'"},
        Refused{"DropoutOffTheFirstAxis",
                [](Graph& g, int64_t b) {
                  const Value rng = input(g, "rng", {DType::kI64, {3}});
                  g.add_output("y", dropout(transpose(data(g, {b, 4}), {1, 0}), rng, 0.5, 4));
                },
                "output 'y': the dropout mask does not follow the batch: the batch must be the "
                "first axis, and `samples` its size, at site ':dropout.0'"}),
    [](const auto& refused) { return std::string(refused.param.name); });

// The gradient buffers of a micro-batch: the sum goes on where the last micro-batch left it. Any
// other use of the buffer beside the sum is refused (BiasOnSum above).
TEST(BatchFlow, AccumulationIntoAnUpdatedInputIsSeparable) {
  const auto model = [](bool updates) {
    return Model([updates](Graph& g, int64_t b) {
      const Value buffer = weight(g, "buffer", {3});
      const Value sum = buffer + reduce_sum(data(g, {b, 3}), {0});
      g.add_output("buffer.new", sum, updates ? "buffer" : "");
    });
  };
  EXPECT_TRUE(model(true).report().separable);
  EXPECT_FALSE(model(false).report().separable);
}

TEST(BatchFlow, InputsMustAgreeOnTheBatch) {
  Graph g;
  input(g, "x", {DType::kF32, {4, 3}}, 0);
  input(g, "y", {DType::kF32, {5, 3}}, 0);
  EXPECT_THROW(analyze_batch(g), UserError);
}

// ---- random models ----

// Rank-2 or rank-3 values with the batch first, last or within, moved about and combined.
void random_model(Graph& g, int64_t batch, uint64_t seed) {
  Random random(seed);
  std::vector<Value> pool{data(g, {batch, 3, 2}), input(g, "z", {DType::kF64, {5, batch}}, 1)};
  int weights = 0;
  for (int i = 0; i < 8; ++i) {
    Value x = pool[static_cast<size_t>(random.integer(0, static_cast<int64_t>(pool.size()) - 1))];
    const int64_t axis = x.rank() > 0 ? random.integer(0, x.rank() - 1) : 0;
    const int64_t kind = random.integer(0, 11);
    if (x.rank() == 0 || kind == 0) {
      x = tanh(x);
    } else if (kind == 1) {
      x = reduce_sum(x, {axis}, random.chance(0.5));
    } else if (kind == 2) {
      std::vector<int64_t> perm;
      for (int64_t k = 0; k < x.rank(); ++k) perm.push_back((k + 1) % x.rank());
      x = transpose(x, perm);
    } else if (kind == 3) {
      x = reshape(x, {-1});
    } else if (kind == 4 && x.rank() >= 2) {
      x = reshape(x, {x.dim(0) * x.dim(1), -1});
    } else if (kind == 5) {
      x = softmax(x, axis);
    } else if (kind == 6 && x.rank() >= 2) {
      const auto w = [&](Shape s) {
        return weight(g, fmt::format("w{}", weights++), std::move(s));
      };
      x = matmul(x, w({x.dim(-1), 3}));
    } else if (kind == 7) {
      x = x + x * 0.5;
    } else if (kind == 8 && x.rank() == 2) {
      x = matmul(x, x, true, false);
    } else if (kind == 9) {
      x = concat({x, x * 2.0}, axis);
    } else if (kind == 10) {
      x = reduce_mean(x, {axis});
    } else {
      Shape repeated = x.shape();
      repeated.insert(repeated.begin(), 2);
      x = broadcast(x, repeated);
      if (x.rank() > 4) x = reduce_max(x, {0});
    }
    pool.push_back(x);
  }
  for (size_t i = 0; i < pool.size(); ++i) g.add_output(fmt::format("y{}", i), pool[i]);
  const Value last = pool.back();
  const Value wrt[] = {pool[0]};
  g.add_output("gradient", gradients(reduce_sum(last * last), wrt)[0]);
}

TEST(BatchFlow, ClaimsHoldOnRandomModels) {
  int separable = 0, outputs = 0;
  for (int seed = 0; seed < cases(200); ++seed) {
    SCOPED_TRACE(seed);
    const Model model(
        [seed](Graph& g, int64_t b) { random_model(g, b, static_cast<uint64_t>(seed)); });
    separable += check_claims(model);
    outputs += static_cast<int>(model.graph(4).outputs().size());
  }
  // The analysis must neither refuse everything nor accept everything.
  EXPECT_GT(separable, outputs / 3);
  EXPECT_LT(separable, outputs);
}

}  // namespace
}  // namespace ridge::test
