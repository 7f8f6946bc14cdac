// Models from the files of a run: its folder, a checkpoint, its configuration, weights alone.
#include "ridge/infer/load_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ridge/config/text.h"
#include "ridge/data/dataset.h"
#include "ridge/infer/model_session.h"
#include "ridge/io/checkpoint.h"
#include "ridge/io/file.h"
#include "ridge/run/compare.h"
#include "ridge/train/evaluate.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

class LoadModel : public testing::Test {
 protected:
  // Two checkpoints, and a configuration beside the folder of the run.
  LoadModel() : run_(folder_ / "run"), toml_((folder_ / "model.toml").string()) {
    config_.train.out = run_.string();
    config_.train.steps = 6;
    config_.checkpoint.every = 3;
    TrainRequest request;
    request.config = config_;
    request.config_toml = to_toml(config_);
    Watch watch;
    train(request, watch);
    write_file_atomically(toml_, request.config_toml);
  }

  NamedTensors run(const std::string& path, const LoadOptions& options = {}) {
    return ModelSession(load_model(path, options)).run(samples_);
  }
  std::string checkpoint(int64_t step) const {
    return checkpoint_path(run_ / "checkpoints", step).string();
  }

  TempFolder folder_;
  std::filesystem::path run_;
  std::string toml_;
  TrainConfig config_ = small_config("mlp");
  NamedTensors samples_ = [] {
    Tensor x({DType::kF32, {5, 20}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, std::sin(static_cast<double>(i)));
    NamedTensors samples;
    samples.emplace("x", std::move(x));
    return samples;
  }();
};

TEST_F(LoadModel, FromEachFileOfARunGivesTheSame) {
  const NamedTensors wanted = run(run_.string());
  EXPECT_EQ(to_string(wanted.at("logits").type()), "f32[5,4]");
  for (const std::string& path : {run_.string() + "/", toml_, checkpoint(6)})
    EXPECT_EQ(bit_difference(run(path), wanted), "") << path;
  const std::string weights = (run_ / "model.safetensors").string();
  EXPECT_EQ(bit_difference(run(toml_, {.weights = weights}), wanted), "");
  EXPECT_EQ(bit_difference(run(toml_, {.device = "cpu"}), wanted), "");
  EXPECT_NE(bit_difference(run(checkpoint(3)), wanted), "");
  EXPECT_EQ(load_model(checkpoint(3)).weights, checkpoint(3));
  EXPECT_EQ(bit_difference(run(checkpoint(3)), run(toml_, {.weights = checkpoint(3)})), "");
}

// A run that was moved is where its folder is, not where it was.
TEST_F(LoadModel, FollowsAFolderThatWasMoved) {
  const NamedTensors wanted = run(run_.string());
  std::filesystem::rename(run_, folder_ / "elsewhere");
  EXPECT_EQ(bit_difference(run((folder_ / "elsewhere").string()), wanted), "");
  EXPECT_THAT(user_error([&] { run(toml_); }), has("no checkpoint in"));
}

// The fix is one of what was asked for: no resumed training.
TEST_F(LoadModel, TellsWhichWeightsToGiveWhereAllAreDamaged) {
  for (const int64_t step : {3, 6})
    std::filesystem::resize_file(std::filesystem::path(checkpoint(step)) / "state.safetensors", 9);
  EXPECT_THAT(user_error([&] { run(toml_); }),
              has("can be used:", "; train first, or give the weights by --weights"));
  EXPECT_THAT(user_error([&] { run(toml_, {.weights = run_.string()}); }),
              has("can be used:", "; give --weights a file, or the folder of a run"));
}

TEST_F(LoadModel, IsAsRightAsAnEvaluation) {
  const auto data = data::open_dataset(config_.data, data::Split::kEval);
  const auto scratch = data->make_scratch(nullptr);
  Tensor x({DType::kF32, {data->size(), 20}}), y({DType::kI64, {data->size()}});
  for (int64_t i = 0; i < data->size(); ++i) {
    void* const to[] = {x.span<float>().data() + i * 20, y.span<int64_t>().data() + i};
    data->read(i, {}, to, *scratch);
  }
  NamedTensors samples;
  samples.emplace("x", std::move(x));
  const NamedTensors results = ModelSession(load_model(toml_)).run(samples);
  const auto logits = results.at("logits").span<float>();
  int64_t correct = 0;
  for (size_t i = 0; i < logits.size(); i += 4) {
    const auto row = logits.subspan(i, 4);
    correct += std::max_element(row.begin(), row.end()) - row.begin() == y.span<int64_t>()[i / 4];
  }
  TrainObserver nobody;
  const EvalResult evaluated = evaluate_model(config_, {}, nobody);
  EXPECT_EQ(static_cast<double>(correct) / static_cast<double>(data->size()),
            evaluated.report.accuracy);
}

// The checkpoint describes the data, so that none need be there.
TEST_F(LoadModel, NeedsNoTrainingData) {
  config_.data.kind = data::DataKind::kTable;
  config_.data.path = (folder_ / "t.csv").string();
  config_.data.target = "kind";
  config_.model.mlp.outputs = 0;
  config_.train.batch = 2;
  config_.train.out = (folder_ / "table").string();
  write_file_atomically(config_.data.path, "b,kind,a\n1,cat,2\n3,dog,1\n2,cow,5\n4,cat,0\n");
  TrainRequest request;
  request.config = config_;
  request.config_toml = to_toml(config_);
  Watch watch;
  train(request, watch);
  std::filesystem::remove(config_.data.path);
  ModelSession session(load_model(config_.train.out));
  ASSERT_TRUE(session.model().data.has_value());
  EXPECT_EQ(session.model().data->columns, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(session.model().data->class_names, (std::vector<std::string>{"cat", "cow", "dog"}));
  NamedTensors rows;
  rows.emplace("x", Tensor({DType::kF32, {7, 2}}));
  EXPECT_EQ(to_string(session.run(rows).at("logits").type()), "f32[7,3]");
}

TEST_F(LoadModel, SaysWhatIsMissing) {
  EXPECT_THAT(user_error([&] { run(folder_.path().string()); }),
              has("no config.toml in", "give the folder of a run, of a checkpoint in it, or a "));
  EXPECT_THAT(user_error([&] { run((folder_ / "none.toml").string()); }), has("none.toml"));
  EXPECT_THAT(user_error([&] { run(toml_, {.device = "gpu"}); }), has("'gpu'"));
  config_.model.mlp.hidden = {16, 13};
  write_file_atomically(toml_, to_toml(config_));
  EXPECT_THAT(user_error([&] { run(toml_); }), has("expected f32["));
}

// The threads that a configuration asks for are those of its runs.
TEST_F(LoadModel, LeavesTheSettingsAsTheyAre) {
  const int64_t threads = settings().get_int("threads");
  write_file_atomically(toml_, fmt::format("threads = {}\n", threads + 3) + to_toml(config_));
  run(toml_);
  EXPECT_EQ(settings().get_int("threads"), threads);
}

}  // namespace
}  // namespace ridge::test
