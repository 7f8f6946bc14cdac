// Training against PyTorch, loss by loss: golden/make_loss_tables.py wrote the tables, and those of
// fp16 golden/make_fp16_tables.py. Weights and data come from the same formula here and there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/compile/pipeline.h"
#include "ridge/nn/schedule.h"
#include "tests/nn/program_run.h"
#include "tests/support/lazy_backend.h"

namespace ridge::test {
namespace {

using nlohmann::json;

const json& golden() {
  static const json tables = json::parse(std::ifstream("tests/nn/golden/loss_tables.json"));
  return tables;
}

// Number `index` of a stream, in [-1, 1): a hash of 32 bits.
double noise(uint64_t stream, uint64_t index) {
  constexpr uint64_t kMask = 0xffffffffu;
  uint64_t h = (index * 2654435761u + stream * 974711u + 1u) & kMask;
  h = ((h ^ (h >> 15)) * 2246822519u) & kMask;
  h = ((h ^ (h >> 13)) * 3266489917u) & kMask;
  h ^= h >> 16;
  return static_cast<double>(h) / 2147483648.0 - 1.0;
}

// The first value of parameter `number`: weights by their fan-in, norms' scales around 1.
Tensor weight_of(const nn::ParameterSpec& spec, uint64_t number) {
  Tensor tensor(spec.type);
  const Shape& shape = spec.type.shape;
  const bool is_weight = shape.size() > 1;
  const auto fan_in = static_cast<double>(tensor.elements() / shape.back());
  const double bound = is_weight ? std::sqrt(3.0 / fan_in) : 0.1;
  const double centre = spec.name.ends_with(".scale") ? 1.0 : 0.0;
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, noise(number, static_cast<uint64_t>(i)) * bound + centre);
  return tensor;
}

nn::ModelOptions model_options(const json& model, DType dtype) {
  nn::ModelOptions options;
  options.kind = parse_name<nn::ModelKind>(model["kind"].get<std::string>()).value();
  options.dtype = dtype;
  if (options.kind == nn::ModelKind::kMlp) {
    options.mlp = {model["hidden"], model["outputs"], 0.0};
  } else if (options.kind == nn::ModelKind::kCnn) {
    options.cnn = {
        model["widths"], model["blocks"], model["outputs"], 0.0, true, model["momentum"], 1};
  } else if (options.kind == nn::ModelKind::kResNet18) {
    options.resnet18 = {.outputs = model["outputs"], .width = model["width"]};
  } else if (options.kind == nn::ModelKind::kMobileNetV2) {
    options.mobilenetv2 = {
        .outputs = model["outputs"], .multiplier = model["multiplier"], .dropout = 0.0};
  } else {
    options.gpt = {
        model["vocab"], model["context"], model["layers"], model["heads"], model["width"], 0.0};
  }
  return options;
}

nn::OptimizerOptions optimizer_options(const json& optimizer) {
  nn::OptimizerOptions options;
  options.kind = parse_name<nn::OptimizerKind>(optimizer["kind"].get<std::string>()).value();
  options.lr = optimizer["lr"];
  options.beta1 = optimizer.value("beta1", options.beta1);
  options.beta2 = optimizer.value("beta2", options.beta2);
  options.eps = optimizer.value("eps", options.eps);
  options.momentum = optimizer.value("momentum", options.momentum);
  options.weight_decay = optimizer["weight_decay"];
  options.clip = optimizer["clip"];
  return options;
}

nn::ScheduleOptions schedule_options(const json& schedule) {
  return {parse_name<nn::ScheduleKind>(schedule["kind"].get<std::string>()).value(),
          schedule["warmup"],
          schedule["final_ratio"]};
}

nn::SampleTypes sample_types(const json& table, DType dtype) {
  const Shape shape = table["sample"]["x"];
  if (table["model"]["kind"] == "gpt") return {{DType::kI64, shape}, {DType::kI64, shape}};
  return {{dtype, shape}, {DType::kI64, {}}};
}

// Each token decides the next; every seventh target does not count.
void make_tokens(Tensor& x, Tensor& y, uint64_t stream) {
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double token = std::floor((noise(stream, static_cast<uint64_t>(i)) + 1.0) * 32.0);
    x.set(i, token);
    y.set(i, i % 7 == 3 ? -100.0 : std::fmod(token * 5.0 + 3.0, 64.0));
  }
}

// Labels 0 to 3 in turn: the label's feature, or its quadrant of the image, is larger by 1.
void make_labelled(Tensor& x, Tensor& y, uint64_t stream) {
  const Shape& shape = x.type().shape;
  const int64_t each = x.elements() / shape[0];
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t label = i / each % 4, place = i % each;
    bool larger = place == label;
    if (shape.size() == 4) {
      const int64_t row = place / shape[3] / shape[2], column = place / shape[3] % shape[2];
      larger = row < 6 && row / 3 == label / 2 && column / 3 == label % 2;
    }
    x.set(i, noise(stream, static_cast<uint64_t>(i)) + (larger ? 1.0 : 0.0));
  }
  for (int64_t i = 0; i < shape[0]; ++i) y.set(i, static_cast<double>(i % 4));
}

NamedTensors batch_of(const nn::Model& model, int64_t size, uint64_t stream) {
  const auto zeros = [&](TensorType type) {
    type.shape.insert(type.shape.begin(), size);
    return Tensor(type);
  };
  Tensor x = zeros(model.sample().x), y = zeros(model.sample().y);
  (model.options().kind == nn::ModelKind::kGpt ? make_tokens : make_labelled)(x, y, stream);
  NamedTensors data;
  data.emplace("x", std::move(x));
  data.emplace("y", std::move(y));
  return data;
}

struct Case {
  std::string table, backend;
  DType dtype;
  int64_t loss_chunks = 1;
};

// With its loss in so many parts.
Graph chunked(Graph graph, int64_t chunks, const std::string& backend) {
  const size_t nodes = graph.nodes().size();
  if (chunks > 1) {
    run_pipeline(graph, *make_backend(backend), {.loss_chunks = chunks, .off = {"all"}});
    EXPECT_GT(graph.nodes().size(), nodes);
  }
  return graph;
}

class LossTable : public ::testing::TestWithParam<Case> {
 protected:
  LossTable()
      : table_(golden()["tables"][GetParam().table]),
        training_(
            nn::make_model(model_options(table_["model"], dtype()), sample_types(table_, dtype())),
            optimizer_options(table_["optimizer"])),
        run_(GetParam().backend, training_.initial_state(false, 0)) {
    uint64_t number = 0;
    for (const nn::ParameterSpec& spec : training_.parameters())
      run_.state().at(spec.name) = weight_of(spec, number++);
  }

  DType dtype() const { return GetParam().dtype; }
  const json& want() const { return table_[std::string(name_of(dtype()))]; }
  double tolerance() const { return dtype() == DType::kF64 ? 1e-9 : 1e-5; }
  NamedTensors batch(uint64_t index) const {
    const json& sample = table_["sample"];
    return batch_of(training_.model(), sample["batch"], sample["stream"].get<uint64_t>() + index);
  }

  const json& table_;
  nn::Training training_;
  ProgramRun run_;
};

TEST_P(LossTable, IsPyTorchs) {
  const int64_t steps = table_.value("steps", golden()["steps"].get<int64_t>());
  const uint64_t batches = golden()["batches"];
  const nn::ScheduleOptions schedule = schedule_options(table_["schedule"]);
  const auto chunked_loss = [](Graph graph) {
    return chunked(std::move(graph), GetParam().loss_chunks, GetParam().backend);
  };
  const int64_t samples = table_["sample"]["batch"];
  const Graph step_graph = chunked_loss(training_.step(samples));
  for (int64_t step = 0; step < steps; ++step) {
    const auto i = static_cast<size_t>(step);
    NamedTensors data = batch(i % batches);
    const nn::StepScalars scalars = nn::step_scalars(training_.optimizer(), schedule, step, steps);
    EXPECT_NEAR(scalars.lr, want()["lr"][i], 1e-12) << "step " << step;
    data.emplace("hyper", nn::hyper_tensor(scalars, training_.accumulate()));
    const NamedTensors got = run_.run(step_graph, data);
    EXPECT_NEAR(got.at("loss").at(0), want()["loss"][i], tolerance()) << "step " << step;
    // Losses are near 1; norms may be in the hundreds, and their rounding grows with them.
    const double norm = want()["grad_norm"][i];
    EXPECT_NEAR(got.at("grad_norm").at(0), norm, 10.0 * tolerance() * std::max(1.0, norm))
        << "step " << step;
  }
  const double first = want()["loss"].front(), last = want()["loss"].back();
  if (!table_.contains("steps")) {
    EXPECT_LE(last, 0.7 * first);
  }
  EXPECT_EQ(run_.state().at("halted").at(0), 0.0);

  const Graph evaluation = chunked_loss(training_.evaluation(samples));
  const NamedTensors sums = run_.run(evaluation, batch(batches));
  EXPECT_NEAR(sums.at("loss").at(0) / sums.at("count").at(0), want()["eval_loss"], tolerance());
  EXPECT_EQ(sums.at("correct").at(0), want()["eval_correct"]);
}

INSTANTIATE_TEST_SUITE_P(All,
                         LossTable,
                         ::testing::Values(Case{"mlp", "ref", DType::kF64},
                                           Case{"mlp", "cpu", DType::kF64},
                                           Case{"mlp", "cpu", DType::kF32},
                                           Case{"cnn", "ref", DType::kF64},
                                           Case{"cnn", "cpu", DType::kF64},
                                           Case{"cnn", "cpu", DType::kF32},
                                           Case{"resnet18", "ref", DType::kF64},
                                           Case{"resnet18", "cpu", DType::kF64},
                                           Case{"mobilenetv2", "cpu", DType::kF64},
                                           Case{"gpt", "ref", DType::kF64},
                                           Case{"gpt", "cpu", DType::kF64},
                                           Case{"gpt", "cpu", DType::kF32},
                                           Case{"mlp", "ref", DType::kF64, 5},
                                           Case{"cnn", "cpu", DType::kF64, 2},
                                           Case{"gpt", "ref", DType::kF64, 2},
                                           Case{"gpt", "cpu", DType::kF64, 3},
                                           Case{"gpt", "cpu", DType::kF32, 7}),
                         [](const auto& tested) {
                           const Case& c = tested.param;
                           const std::string name =
                               fmt::format("{}_{}_{}", c.table, c.backend, name_of(c.dtype));
                           return c.loss_chunks == 1 ? name
                                                     : fmt::format("{}_in_{}", name, c.loss_chunks);
                         });

// ---- 16 bits in memory ----

// The graph as it is compiled for a device that keeps operands and results of products in 16 bits.
// The CPU runs it.
Graph stored_in_bf16(Graph graph) {
  LazyBackend device({.stores_16_bits = true});
  run_pipeline(graph, device, {.precision = DType::kBF16});
  return graph;
}

// The kernels are those of AVX2, which all machines have: others for bf16 add up in another order,
// and a trajectory over these steps is one draw of what rounding does.
class AutocastTable : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { cpu::set_isa(cpu::Isa::kAvx2); }
  void TearDown() override { cpu::set_isa(isa_); }
  const cpu::Isa isa_ = cpu::isa();
};

// Both round at the same places but for biases, which autocast adds before it rounds: two ways of
// bf16, so they part no further than bf16 parts from f32.
TEST_P(AutocastTable, LossesAreWithinWhatRoundingDoes) {
  const json golden = json::parse(std::ifstream("tests/nn/golden/autocast_tables.json"));
  const json& table = golden["tables"][GetParam()];
  const nn::Training training(
      nn::make_model(model_options(table["model"], DType::kF32), sample_types(table, DType::kF32)),
      optimizer_options(table["optimizer"]));
  ProgramRun run("cpu", training.initial_state(false, 0));
  uint64_t number = 0;
  for (const nn::ParameterSpec& spec : training.parameters())
    run.state().at(spec.name) = weight_of(spec, number++);
  const Graph step = stored_in_bf16(training.step(table["sample"]["batch"].get<int64_t>()));
  const int64_t steps = golden["steps"];
  const nn::ScheduleOptions schedule = schedule_options(table["schedule"]);
  double of_rounding = 0, apart = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const auto at = static_cast<size_t>(i);
    NamedTensors data = batch_of(
        training.model(),
        table["sample"]["batch"],
        table["sample"]["stream"].get<uint64_t>() + at % golden["batches"].get<uint64_t>());
    const nn::StepScalars scalars = nn::step_scalars(training.optimizer(), schedule, i, steps);
    data.emplace("hyper", nn::hyper_tensor(scalars, training.accumulate()));
    const double loss = run.run(step, data).at("loss").at(0);
    const double f32 = table["f32"][at], bf16 = table["bf16"][at];
    of_rounding = std::max(of_rounding, std::fabs(bf16 - f32));
    apart = std::max(apart, std::fabs(loss - bf16));
    // In f32 the first loss is PyTorch's to a few units of 2^-24.
    if (i == 0) {
      EXPECT_GT(std::fabs(loss - f32), 3e-6);
      EXPECT_NEAR(loss, f32, 2e-3);
    }
  }
  EXPECT_LE(apart, 1.5 * of_rounding);
}

INSTANTIATE_TEST_SUITE_P(All,
                         AutocastTable,
                         ::testing::Values("mlp", "cnn", "gpt"),
                         [](const auto& tested) { return tested.param; });

// ---- fp16, with a loss scale ----

// Its matrix products round their operands to f16.
Graph rounded(Graph graph, int64_t loss_chunks) {
  run_pipeline(graph, *make_backend("cpu"), {.precision = DType::kF16, .loss_chunks = loss_chunks});
  return graph;
}

struct Fp16Case {
  std::string table;
  int64_t parts;        ///< Micro-batches a step.
  double first, later;  ///< Tolerances of losses before the first update, and after it.
  int64_t loss_chunks = 1;
};

class Fp16Table : public ::testing::TestWithParam<Fp16Case> {
 protected:
  // A step of the whole batch, or of parts of it.
  NamedTensors step(const nn::Training& training, ProgramRun& run, const NamedTensors& data) {
    const int64_t samples = data.at("y").type().shape[0], size = samples / GetParam().parts;
    const int64_t chunks = GetParam().loss_chunks;
    if (GetParam().parts == 1) return run.run(rounded(training.step(samples), chunks), data);
    const Graph micro = rounded(training.micro(size), chunks);
    for (int64_t first = 0; first < samples; first += size) {
      NamedTensors part;
      part.emplace("x", rows(data.at("x"), first, size));
      part.emplace("y", rows(data.at("y"), first, size));
      run.run(micro, part);
    }
    return run.run(rounded(training.apply(), chunks), data);
  }
};

TEST_P(Fp16Table, IsPyTorchsWithItsGradScaler) {
  const json golden = json::parse(std::ifstream("tests/nn/golden/fp16_tables.json"));
  const json& table = golden["tables"][GetParam().table];
  const nn::Training training(
      nn::make_model(model_options(table["model"], DType::kF32), sample_types(table, DType::kF32)),
      optimizer_options(table["optimizer"]),
      {.initial = golden["loss_scale"]["initial"],
       .growth_interval = golden["loss_scale"]["growth_interval"]});
  ProgramRun run("cpu", training.initial_state(GetParam().parts > 1, 0));
  uint64_t number = 0;
  for (const nn::ParameterSpec& spec : training.parameters())
    run.state().at(spec.name) = weight_of(spec, number++);
  const int64_t steps = golden["steps"];
  int64_t skipped = 0;
  for (int64_t step_number = 0; step_number < steps; ++step_number) {
    const auto i = static_cast<size_t>(step_number);
    const std::string place = "step " + std::to_string(step_number);
    NamedTensors data =
        batch_of(training.model(),
                 table["sample"]["batch"],
                 table["sample"]["stream"].get<uint64_t>() + i % golden["batches"].get<uint64_t>());
    // The host knows of skipped steps late: how late does not matter.
    const int64_t unknown = std::min(skipped, step_number % 4);
    data.emplace("hyper",
                 training.hyper(schedule_options(table["schedule"]),
                                {.step = step_number,
                                 .total_steps = steps,
                                 .skipped = skipped - unknown,
                                 .maybe_skipped = step_number % 4}));
    const NamedTensors got = step(training, run, data);
    // Some roundings to f16 go the other way when f32 rounds otherwise: another order of sums moves
    // PyTorch's own losses as much. Without any rounding to f16 the first ones are off by twice
    // that.
    const double tolerance = skipped == step_number ? GetParam().first : GetParam().later;
    EXPECT_NEAR(got.at("loss").at(0), table["loss"][i], tolerance) << place;
    EXPECT_EQ(run.state().at("loss_scale").at(0), table["scale"][i]) << place;
    EXPECT_EQ(std::isfinite(got.at("grad_norm").at(0)), !table["grad_norm"][i].is_null()) << place;
    if (table["grad_norm"][i].is_null())
      ++skipped;
    else
      EXPECT_NEAR(got.at("grad_norm").at(0), table["grad_norm"][i], 2e-3) << place;
    EXPECT_EQ(run.state().at("loss_scale.skipped").at(0), static_cast<double>(skipped)) << place;
    EXPECT_EQ(run.state().at("halted").at(0), 0.0) << place;
  }
  EXPECT_GE(skipped, 5);
}

INSTANTIATE_TEST_SUITE_P(All,
                         Fp16Table,
                         ::testing::Values(Fp16Case{"mlp", 1, 2e-6, 3e-4},
                                           Fp16Case{"mlp", 2, 2e-6, 3e-4},
                                           Fp16Case{"gpt", 1, 2e-5, 2e-3},
                                           Fp16Case{"mlp", 2, 2e-6, 3e-4, 3},
                                           Fp16Case{"gpt", 1, 2e-5, 2e-3, 4}),
                         [](const auto& tested) {
                           const Fp16Case& c = tested.param;
                           return fmt::format("{}_{}_{}", c.table, c.parts, c.loss_chunks);
                         });

}  // namespace
}  // namespace ridge::test
