// Lines and files as samples: contents, lengths and padding, hostile files; and the lengths that
// batches of them are cut to.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <sstream>

#include "ridge/data/lengths.h"
#include "ridge/data/loader.h"
#include "tests/data/lengths_dataset.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"

namespace ridge::data {
namespace {

using test::Lengths;
using test::TemporaryFolder;
using test::user_error;

struct Tokens {
  std::vector<int64_t> x, y;
  bool operator==(const Tokens&) const = default;
};

Tokens read_tokens(const Dataset& dataset, int64_t index) {
  const auto count = static_cast<size_t>(dataset.fields()[0].elements());
  Tokens tokens{std::vector<int64_t>(count, 77), std::vector<int64_t>(count, 77)};
  const std::array<void*, 2> out{tokens.x.data(), tokens.y.data()};
  const auto scratch = dataset.make_scratch(nullptr);
  dataset.read(index, {}, out, *scratch);
  return tokens;
}

/// All samples of a folder, none held back.
std::unique_ptr<Dataset> open_all(const TemporaryFolder& folder,
                                  TextSamples samples,
                                  int64_t context) {
  return open_dataset({.kind = DataKind::kText,
                       .path = folder.path(),
                       .eval_path = folder.path(),
                       .context = context,
                       .text_samples = samples},
                      Split::kTrain);
}

constexpr int64_t kPad = kPadLabel;

TEST(RaggedText, ALineEndsWithItsEnd) {
  const TemporaryFolder folder;
  folder.write("a", std::string("\n\nab\n\n\0c\n", 9));  // a NUL byte is a token as any other
  folder.write("b", "");
  folder.write("c", "four\nlonger than that\r\nz");  // no end of the last line
  const auto lines = open_all(folder, TextSamples::kLines, 4);
  ASSERT_EQ(lines->size(), 5);
  EXPECT_EQ(lines->fields()[0].shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(lines->classes(), 256);
  const std::vector<Tokens> expected = {
      {{'a', 'b', 0, 0}, {'b', '\n', kPad, kPad}},
      {{0, 'c', 0, 0}, {'c', '\n', kPad, kPad}},
      {{'f', 'o', 'u', 'r'}, {'o', 'u', 'r', '\n'}},
      {{'l', 'o', 'n', 'g'}, {'o', 'n', 'g', 'e'}},
      {{'z', 0, 0, 0}, {'\n', kPad, kPad, kPad}},
  };
  const int64_t lengths[] = {2, 2, 4, 4, 1};
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(read_tokens(*lines, i), expected[static_cast<size_t>(i)]) << i;
    EXPECT_EQ(lines->length(i), lengths[i]) << i;
  }
}

TEST(RaggedText, AFileEndsWithAZero) {
  const TemporaryFolder folder;
  folder.write("a", "");
  folder.write("b", "x\ny");
  folder.write("c", "");
  folder.write("d", "abcd");
  folder.write("e", "!");
  const auto files = open_all(folder, TextSamples::kFiles, 3);
  ASSERT_EQ(files->size(), 3);
  EXPECT_EQ(read_tokens(*files, 0), (Tokens{{'x', '\n', 'y'}, {'\n', 'y', 0}}));
  EXPECT_EQ(read_tokens(*files, 1), (Tokens{{'a', 'b', 'c'}, {'b', 'c', 'd'}}));
  EXPECT_EQ(read_tokens(*files, 2), (Tokens{{'!', 0, 0}, {0, kPad, kPad}}));
}

// Any bytes, against a splitting by the standard library.
TEST(RaggedText, LinesAreThoseOfGetline) {
  std::mt19937 random(3);
  for (int round = 0; round < test::cases(30); ++round) {
    const TemporaryFolder folder;
    const int64_t context = 1 + static_cast<int64_t>(random() % 12);
    std::vector<std::string> lines;
    for (const char* name : {"a", "b", "c"}) {
      std::string text;
      for (uint64_t left = random() % 200; left > 0; --left)
        text += random() % 6 == 0 ? '\n' : static_cast<char>(random() % 256);
      folder.write(name, text);
      std::istringstream stream(text);
      for (std::string line; std::getline(stream, line);)
        if (!line.empty()) lines.push_back(line);
    }
    if (lines.empty()) continue;
    const auto dataset = open_all(folder, TextSamples::kLines, context);
    ASSERT_EQ(dataset->size(), static_cast<int64_t>(lines.size()));
    for (size_t i = 0; i < lines.size(); ++i) {
      const Tokens tokens = read_tokens(*dataset, static_cast<int64_t>(i));
      const std::string line = lines[i] + "\n";
      const int64_t filled = std::min<int64_t>(static_cast<int64_t>(lines[i].size()), context);
      EXPECT_EQ(dataset->length(static_cast<int64_t>(i)), filled);
      for (int64_t t = 0; t < context; ++t) {
        const auto at = static_cast<size_t>(t);
        const auto byte = [&](size_t k) { return int64_t{static_cast<unsigned char>(line[k])}; };
        ASSERT_EQ(tokens.x[at], t < filled ? byte(at) : 0);
        ASSERT_EQ(tokens.y[at], t < filled ? byte(at + 1) : kPad);
      }
    }
  }
}

TEST(RaggedText, TheLastSamplesAreHeldBack) {
  const TemporaryFolder folder;
  folder.write("a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n0\n");
  DataOptions options{.kind = DataKind::kText,
                      .path = folder.path(),
                      .eval_fraction = 0.2,
                      .context = 2,
                      .text_samples = TextSamples::kLines};
  const auto train = open_dataset(options, Split::kTrain);
  const auto eval = open_dataset(options, Split::kEval);
  ASSERT_EQ(train->size(), 8);
  ASSERT_EQ(eval->size(), 2);
  EXPECT_EQ(read_tokens(*train, 7).x[0], '8');
  EXPECT_EQ(read_tokens(*eval, 0).x[0], '9');
}

TEST(RaggedText, Refusals) {
  const TemporaryFolder folder;
  folder.write("a", "\n\n");
  folder.write("b", "");
  EXPECT_NE(user_error([&] { open_all(folder, TextSamples::kLines, 4); }).find("is empty"),
            std::string::npos);
  EXPECT_NE(user_error([&] { open_all(folder, TextSamples::kLines, 0); }).find("context is 0"),
            std::string::npos);
  EXPECT_EQ(open_all(folder, TextSamples::kFiles, 4)->size(), 1);
}

TEST(RaggedText, BatchesSayHowLongTheyAre) {
  const TemporaryFolder folder;
  std::mt19937 random(5);
  std::string text;
  for (int i = 0; i < 150; ++i) text += std::string(1 + random() % 40, 'a') + "\n";
  folder.write("a", text);
  const auto dataset = open_all(folder, TextSamples::kLines, 32);
  const auto lengths_with = [&](int64_t workers) {
    Loader loader(*dataset, {.batch = 7, .seed = 2}, {.workers = workers, .prefetch = 3});
    std::vector<int64_t> lengths;
    for (int i = 0; i < 60; ++i) {
      const Batch& batch = loader.next();
      const auto* y = static_cast<const int64_t*>(batch.fields[1]);
      int64_t longest = 0;
      for (int64_t k = 0; k < batch.count * 32; ++k)
        if (y[k] != kPad) longest = std::max(longest, k % 32 + 1);
      EXPECT_EQ(batch.longest, longest);
      lengths.push_back(longest);
    }
    return lengths;
  };
  const std::vector<int64_t> expected = lengths_with(0);
  EXPECT_GT(*std::max_element(expected.begin(), expected.end()),
            *std::min_element(expected.begin(), expected.end()));
  EXPECT_EQ(lengths_with(1), expected);
  EXPECT_EQ(lengths_with(4), expected);
}

// ---- batch_lengths ----

/// The mean length over all pairs of samples (one may come twice), each cut to the shortest of
/// `cuts` that holds it.
double mean_of_pairs(const Dataset& dataset, const std::vector<int64_t>& cuts) {
  const int64_t whole = dataset.fields()[0].shape[0], count = dataset.size();
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < count; ++k) {
      const int64_t longest = std::max(dataset.length(i), dataset.length(k));
      const auto cut = std::lower_bound(cuts.begin(), cuts.end(), longest);
      sum += cut == cuts.end() ? whole : *cut;
    }
  return static_cast<double>(sum) / static_cast<double>(count * count);
}

// Against every set of places to cut at.
TEST(BatchLengths, NoOtherCutsAreBetter) {
  constexpr int64_t kPlaces = 9, kWhole = 75;  // 8, 16, ... 72, and the whole
  std::mt19937 random(7);
  for (int round = 0; round < test::cases(20); ++round) {
    std::vector<int64_t> lengths;
    const uint64_t most = 1 + random() % kWhole;
    for (uint64_t i = 0; i < 5 + random() % 20; ++i) lengths.push_back(1 + random() % most);
    const Lengths dataset(lengths, kWhole);
    const std::vector<int64_t> chosen = batch_lengths(dataset, 2);
    ASSERT_LE(chosen.size(), static_cast<size_t>(kBatchLengths));
    ASSERT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
    for (int64_t length : chosen) EXPECT_TRUE(length % 8 == 0 && length < kWhole) << length;
    const double found = mean_of_pairs(dataset, chosen);
    std::array<double, kBatchLengths + 1> best;
    best.fill(std::numeric_limits<double>::infinity());
    for (uint32_t set = 0; set < (1u << kPlaces); ++set) {
      std::vector<int64_t> cuts;
      for (int64_t place = 0; place < kPlaces; ++place)
        if ((set >> place & 1u) != 0) cuts.push_back(8 * (place + 1));
      if (cuts.size() > static_cast<size_t>(kBatchLengths)) continue;
      best[cuts.size()] = std::min(best[cuts.size()], mean_of_pairs(dataset, cuts));
    }
    EXPECT_NEAR(found, best[chosen.size()], 1e-9);
    // One more would not save a hundredth.
    if (chosen.size() < static_cast<size_t>(kBatchLengths)) {
      EXPECT_GE(best[chosen.size() + 1], 0.99 * found - 1e-9);
    }
  }
}

TEST(BatchLengths, WhereThereIsNothingToCut) {
  EXPECT_TRUE(batch_lengths(Lengths({64, 64, 64}, 64), 4).empty());
  EXPECT_TRUE(batch_lengths(Lengths({0, 0}, 64), 4).empty());  // not ragged
  EXPECT_TRUE(batch_lengths(Lengths({1, 5, 2}, 6), 4).empty());
  EXPECT_EQ(batch_lengths(Lengths({3, 4, 5}, 64), 4), (std::vector<int64_t>{8}));
  // Places of long samples are coarser.
  for (int64_t length : batch_lengths(Lengths({1, 5000, 90000, 100000}, 100000), 1))
    EXPECT_EQ(length % 784, 0);
}

}  // namespace
}  // namespace ridge::data
