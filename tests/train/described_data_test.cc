// Checkpoints say what they were trained on: other files are evaluated, and trained on, by the
// names of columns and classes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ridge/data/description.h"
#include "ridge/infer/find_checkpoint.h"
#include "ridge/io/safetensors.h"
#include "ridge/train/evaluate.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

// Row i of the columns a, b and c, and its class; further columns may stand beside them.
std::string table(const std::string& header, const std::string& kinds = "cat dog emu") {
  const auto value = [&](const std::string& name, int64_t i) -> std::string {
    if (name == "kind") return kinds.substr(static_cast<size_t>(4 * (i % 3)), 3);
    if (name == "id") return fmt::format("row {}", i);
    return fmt::format("{}", (i * (name[0] - 'a' + 3)) % 7 + 10 * (name[0] - 'a'));
  };
  std::vector<std::string> names;
  for (size_t at = 0; at < header.size(); at = header.find_first_not_of(' ', header.find(' ', at)))
    names.push_back(header.substr(at, header.find(' ', at) - at));
  std::string text;
  for (int64_t i = -1; i < 24; ++i)
    for (size_t n = 0; n < names.size(); ++n)
      text += (i < 0 ? names[n] : value(names[n], i)) + (n + 1 < names.size() ? "," : "\n");
  return text;
}

class DescribedData : public testing::Test {
 protected:
  DescribedData() {
    config_.model.kind = nn::ModelKind::kMlp;
    config_.model.mlp = {.hidden = {8}, .outputs = 0, .dropout = 0};
    config_.data.kind = data::DataKind::kTable;
    config_.data.target = "kind";
    config_.data.path = config_.data.eval_path = write("train.csv", table("a b kind c"));
    config_.train.batch = 8;
    config_.train.steps = 6;
    config_.train.out = (folder_ / "run").string();
    config_.loader.workers = 0;
  }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  // Evaluates on a file that is also the training data, as if the configuration were its own.
  double loss(const std::string& text, const std::string& weights = "") {
    TrainConfig config = config_;
    config.data.path = config.data.eval_path = write("other.csv", text);
    watch_.messages.clear();
    return evaluate_model(config, weights, watch_).report.loss;
  }
  std::string refusal(const std::string& text, const std::string& weights = "") {
    return user_error([&] { loss(text, weights); });
  }
  std::filesystem::path checkpoint() const {
    const std::filesystem::path folder = checkpoint_folder(config_.train.out);
    return checkpoint_path(folder, checkpoint_steps(folder).at(0));
  }
  // Writes the newest checkpoint again, changed.
  template <typename Change>
  void rewrite(Change change) {
    std::vector<Tensor> tensors;
    std::vector<TensorView> views;
    const OpenCheckpoint before = open_checkpoint(checkpoint());
    tensors.reserve(before.tensors().size());
    for (const auto& entry : before.tensors()) {
      const Tensor& tensor = tensors.emplace_back(before.read(entry.name));
      views.push_back({entry.name, tensor.type(), tensor.data()});
    }
    Checkpoint info = before.info();
    change(info.texts);
    save_checkpoint(checkpoint_folder(config_.train.out), info, views);
  }
  TrainResult resume(const TrainConfig& config) {
    TrainRequest request;
    request.config = config;
    request.resume = "auto";
    watch_.messages.clear();
    return train(request, watch_);
  }

  TempFolder folder_;
  TrainConfig config_;
  Watch watch_;
};

TEST_F(DescribedData, SwappedColumnsGiveTheSameAnswers) {
  run_small(config_);
  const double wanted = loss(table("a b kind c"));
  EXPECT_TRUE(watch_.messages.empty());
  EXPECT_EQ(loss(table("c kind b a")), wanted);
  EXPECT_TRUE(watch_.messages.empty());
  EXPECT_EQ(loss(table("c kind b a"), config_.train.out + "/model.safetensors"), wanted);
  EXPECT_EQ(loss(table("c id kind b a")), wanted);
  EXPECT_THAT(watch_.messages, Contains(HasSubstr("column 'id' is ignored")));
}

TEST_F(DescribedData, ClassesAreThoseOfTheTraining) {
  run_small(config_);
  // Without its first class, and with another spread of numbers, a file alone says otherwise.
  const std::string few = "a,b,c,kind\n1,12,22,dog\n3,14,21,emu\n";
  TrainConfig config = config_;
  config.data.eval_path = write("few.csv", few);
  const double wanted = evaluate_model(config, "", watch_).report.loss;
  EXPECT_EQ(loss(few), wanted);
  EXPECT_THAT(refusal(table("a b kind c", "cat dog elk")),
              AllOf(HasSubstr("class 'elk'"), HasSubstr("row 3"), HasSubstr("train on all")));
  EXPECT_THAT(refusal(table("a kind c")), HasSubstr("other.csv' has no column 'b'"));
}

TEST_F(DescribedData, OldCheckpointsSayWhatCannotBeChecked) {
  run_small(config_);
  const double wanted = loss(table("a b kind c"));
  rewrite([](auto& texts) { EXPECT_EQ(texts.erase(data::kDescriptionKey), 1u); });
  EXPECT_EQ(loss(table("a b kind c")), wanted);
  ASSERT_EQ(watch_.messages.size(), 1u);
  EXPECT_THAT(watch_.messages[0],
              AllOf(HasSubstr(checkpoint().string()),
                    HasSubstr("columns, classes and normalization of these data")));
  config_.train.steps = 8;
  resume(config_);
  EXPECT_THAT(watch_.messages, Contains(HasSubstr("cannot be checked")));
  resume(config_);
  EXPECT_THAT(watch_.messages, testing::Not(Contains(HasSubstr("cannot be checked"))));
}

TEST_F(DescribedData, ADamagedDescriptionIsOneError) {
  run_small(config_);
  rewrite([](auto& texts) {
    std::string& text = texts.at(data::kDescriptionKey);
    const size_t at = text.find("f32");
    ASSERT_NE(at, text.npos);
    text.replace(at, 3, "u8");
  });
  EXPECT_THAT(refusal(table("a b kind c")),
              AllOf(HasSubstr("step-00000006': ridge.data: x of data of kind 'table' is not u8[3]"),
                    HasSubstr("give its weights alone")));
  EXPECT_THAT(user_error([&] { resume(config_); }), HasSubstr("is not u8[3]"));
  EXPECT_EQ(refusal(table("a b kind c"), (checkpoint() / "state.safetensors").string()),
            "no error");
}

TEST_F(DescribedData, ResumedRunsGoOnByName) {
  TrainConfig whole = config_;
  whole.train.out = (folder_ / "whole").string();
  whole.train.steps = 12;
  const std::string wanted = run_small(whole).state_hash;
  run_small(config_);
  config_.train.steps = 12;
  config_.data.path = write("swapped.csv", table("id c b kind a"));
  EXPECT_EQ(resume(config_).state_hash, wanted);
  EXPECT_THAT(watch_.messages, Contains(HasSubstr("column 'id' is ignored")));
}

TEST_F(DescribedData, AResumedRunRefusesWhatItsModelDoesNotKnow) {
  run_small(config_);
  config_.train.steps = 12;
  config_.data.path = write("other.csv", table("a b kind c", "ape cat dog"));
  EXPECT_THAT(user_error([&] { resume(config_); }), HasSubstr("class 'ape'"));
  config_.data.path = write("other.csv", table("a kind c"));
  config_.data.eval_path = config_.data.path;
  EXPECT_THAT(user_error([&] { resume(config_); }), HasSubstr("has no column 'b'"));
}

}  // namespace
}  // namespace ridge::test
