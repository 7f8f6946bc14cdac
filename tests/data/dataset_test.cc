// Text and made-up data: contents, splits, and what is refused.
#include "ridge/data/dataset.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/data/temporary_folder.h"
#include "tests/support/errors.h"

namespace ridge::data {
namespace {

using test::TemporaryFolder;
using test::user_error;

struct Tokens {
  std::vector<int64_t> x, y;
};

Tokens read_tokens(const Dataset& dataset, int64_t index) {
  const auto count = static_cast<size_t>(dataset.fields()[0].elements());
  Tokens tokens{std::vector<int64_t>(count), std::vector<int64_t>(count)};
  const std::array<void*, 2> out{tokens.x.data(), tokens.y.data()};
  const auto scratch = dataset.make_scratch(nullptr);
  dataset.read(index, {}, out, *scratch);
  return tokens;
}

TEST(Text, FilesAreJoinedInTheOrderOfTheirPaths) {
  const TemporaryFolder folder;
  folder.write("b.h", "BB");
  folder.write("a/x.h", "xyz");
  folder.write("a/skipped.txt", "no");
  folder.write("c.h", "\xff!");
  DataOptions options{
      .kind = DataKind::kText, .path = folder.path(), .extensions = {".h"}, .context = 3};
  // xyz 0 BB 0 ff ! are 9 tokens: samples xyz and 0BB.
  options.eval_fraction = 0.5;
  const auto train = open_dataset(options, Split::kTrain);
  const auto eval = open_dataset(options, Split::kEval);
  ASSERT_EQ(train->size(), 1);
  ASSERT_EQ(eval->size(), 1);
  EXPECT_EQ(train->classes(), 256);
  EXPECT_EQ(train->fields()[0], (FieldType{"x", DType::kI64, {3}}));
  EXPECT_EQ(read_tokens(*train, 0).x, (std::vector<int64_t>{'x', 'y', 'z'}));
  EXPECT_EQ(read_tokens(*train, 0).y, (std::vector<int64_t>{'y', 'z', 0}));
  EXPECT_EQ(read_tokens(*eval, 0).x, (std::vector<int64_t>{0, 'B', 'B'}));
  EXPECT_EQ(read_tokens(*eval, 0).y, (std::vector<int64_t>{'B', 'B', 0}));

  options.extensions.clear();
  options.eval_path = folder.path("c.h");
  options.context = 1;
  const auto other = open_dataset(options, Split::kEval);
  ASSERT_EQ(other->size(), 1);
  EXPECT_EQ(read_tokens(*other, 0).x[0], 255);
  EXPECT_EQ(read_tokens(*other, 0).y[0], '!');
  EXPECT_EQ(open_dataset(options, Split::kTrain)->size(), 11);
}

TEST(Text, Refusals) {
  const TemporaryFolder folder;
  DataOptions options{.kind = DataKind::kText, .path = folder.path("none")};
  const auto open = [&] { open_dataset(options, Split::kTrain); };
  EXPECT_NE(user_error(open).find("No such file"), std::string::npos);
  options.path = folder.path();
  EXPECT_NE(user_error(open).find("no file for text below"), std::string::npos);
  folder.write("short.txt", "abc");
  EXPECT_NE(user_error(open).find("has 3 bytes: too few"), std::string::npos);
  options.context = 2;
  EXPECT_NE(user_error(open).find("too few to hold some back"), std::string::npos);
  options.context = 0;
  EXPECT_NE(user_error(open).find("context is 0"), std::string::npos);
}

struct Numbers {
  std::vector<float> x;
  int64_t y = 0;
};

Numbers read_numbers(const Dataset& dataset, int64_t index) {
  Numbers numbers{std::vector<float>(static_cast<size_t>(dataset.fields()[0].elements()))};
  const std::array<void*, 2> out{numbers.x.data(), &numbers.y};
  const auto scratch = dataset.make_scratch(nullptr);
  dataset.read(index, {}, out, *scratch);
  return numbers;
}

// Means a class from the training split must tell the classes of the other apart.
TEST(Random, ClassesCanBeLearned) {
  const DataOptions options{.kind = DataKind::kRandom, .samples = 1000, .classes = 5};
  const auto train = open_dataset(options, Split::kTrain);
  const auto eval = open_dataset(options, Split::kEval);
  EXPECT_EQ(train->size(), 1000);
  EXPECT_EQ(eval->size(), 100);
  std::array<std::array<double, 32>, 5> mean{};
  std::array<int, 5> count{};
  for (int64_t i = 0; i < 1000; ++i) {
    const Numbers sample = read_numbers(*train, i);
    ASSERT_GE(sample.y, 0);
    ASSERT_LT(sample.y, 5);
    ++count[sample.y];
    for (size_t k = 0; k < 32; ++k) mean[sample.y][k] += sample.x[k];
  }
  int right = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const Numbers sample = read_numbers(*eval, i);
    double nearest = 1e30;
    int64_t guess = -1;
    for (int64_t c = 0; c < 5; ++c) {
      double distance = 0;
      for (size_t k = 0; k < 32; ++k) distance += std::pow(sample.x[k] - mean[c][k] / count[c], 2);
      if (distance < nearest) nearest = distance, guess = c;
    }
    right += guess == sample.y;
  }
  EXPECT_GE(right, 90);
  for (int c : count) EXPECT_NEAR(c, 200, 60);
  EXPECT_NE(read_numbers(*train, 0).x, read_numbers(*eval, 0).x);
}

TEST(Random, TokensFollowEachOther) {
  const DataOptions options{
      .kind = DataKind::kRandom, .samples = 50, .shape = {64}, .classes = 100, .tokens = true};
  const auto dataset = open_dataset(options, Split::kTrain);
  int64_t ruled = 0;
  for (int64_t i = 0; i < 50; ++i) {
    const Tokens tokens = read_tokens(*dataset, i);
    for (size_t k = 0; k < 64; ++k) {
      ASSERT_LT(tokens.y[k], 100);
      ASSERT_GE(tokens.y[k], 0);
      if (k + 1 < 64) {
        ASSERT_EQ(tokens.y[k], tokens.x[k + 1]);
      }
      ruled += tokens.y[k] == (3 * tokens.x[k] + 1) % 100;
    }
  }
  EXPECT_NEAR(static_cast<double>(ruled) / 3200, 0.75, 0.04);
}

TEST(Random, Refusals) {
  const auto refusal = [](const DataOptions& options) {
    return user_error([&] { open_dataset(options, Split::kTrain); });
  };
  EXPECT_NE(refusal({.kind = DataKind::kRandom, .samples = 0}).find("samples is 0"),
            std::string::npos);
  EXPECT_NE(refusal({.kind = DataKind::kRandom, .classes = 0}).find("classes is 0"),
            std::string::npos);
  EXPECT_NE(refusal({.kind = DataKind::kRandom, .shape = {4, -1}}).find("-1 is no size"),
            std::string::npos);
}

}  // namespace
}  // namespace ridge::data
