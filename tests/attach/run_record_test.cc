// The reader of records, on whole and broken files in the folder.
#include "ridge/attach/run_record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

const ShimOptions kRecording{.profiled_steps = 0, .record_steps = 12};

constexpr std::string_view kRecord =
    R"({"rank": -1, "steps": 3, "is_whole": true, "source": "optimizer", "losses": [1.5, "nan", 2],
"gradient_norms": [1, "inf", "-inf"], "output_counts": [], "output_sums": [],
"output_squares": [], "output_projections": [], "parameters_hash": "ab", "outputs_hash": "",
"updates": [{"name": "w", "elements": 6, "is_buffer": false, "sizes": [3, 2], "updates": [1, "nan"],
"update_projections": [1, 2, 3, 4, 5, 6], "along": [0, 1], "gradients": [7, 8],
"gradient_projections": [6, 5, 4, 3, 2, 1], "along_gradients": [-1, -2]}], "batch_hashes": ["a1 b2", "", "c3"],
"is_coarse": true, "trouble": ["a"]})";

class Reader : public testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) {
    std::ofstream(fs::path(folder_.path()) / name, std::ios::binary) << text;
  }
  static std::string with(std::string_view from, std::string_view to) {
    std::string text(kRecord);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }

  ShimFolder folder_{kRecording};
};

TEST_F(Reader, ReadsWhatIsThere) {
  EXPECT_FALSE(read_record(folder_));
  write("record_12.json", kRecord);
  const std::optional<RunRecord> found = read_record(folder_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, 3);
  EXPECT_TRUE(found->is_whole);
  EXPECT_TRUE(found->is_coarse);
  EXPECT_EQ(found->losses[0], 1.5);
  EXPECT_TRUE(std::isnan(found->losses[1]));
  EXPECT_EQ(found->losses[2], 2);
  EXPECT_EQ(found->gradient_norms[1], INFINITY);
  EXPECT_EQ(found->gradient_norms[2], -INFINITY);
  ASSERT_EQ(found->updates.size(), 1u);
  const TensorUpdates& tensor = found->updates[0];
  EXPECT_EQ(tensor.name, "w");
  EXPECT_EQ(tensor.elements, 6);
  EXPECT_EQ(tensor.sizes, (std::vector<double>{3, 2}));
  EXPECT_TRUE(std::isnan(tensor.updates[1]));
  EXPECT_EQ(tensor.update_projections[5], 6);
  EXPECT_EQ(tensor.gradient_projections[5], 1);
  EXPECT_EQ(found->batch_hashes, (std::vector<std::string>{"a1 b2", "", "c3"}));
  EXPECT_EQ(found->trouble, std::vector<std::string>{"a"});
}

TEST_F(Reader, TakesTheProcessThatSteps) {
  write("record_5.json", with("\"steps\": 3", "\"steps\": 0"));  // its numbers are too many
  EXPECT_FALSE(read_record(folder_));
  write("record_6.json", with("-1", "1"));
  EXPECT_EQ(read_record(folder_)->parameters_hash, "ab");
  std::string first = with("-1", "0");
  first.replace(first.find("\"ab\""), 4, "\"cd\"");
  write("record_7.json", first);
  EXPECT_EQ(read_record(folder_)->parameters_hash, "cd");
}

TEST_F(Reader, BrokenOnesAreNotThere) {
  const std::vector<std::string> broken = {
      "",
      "[]",
      "{}",
      "null",
      "\xff\xfe",
      std::string(100, '['),
      std::string(kRecord.substr(0, 80)),
      with("\"steps\": 3", "\"steps\": 4"),
      with("\"steps\": 3", "\"steps\": -3"),
      with("\"steps\": 3", "\"steps\": 1e18"),
      with("\"steps\": 3", "\"steps\": \"3\""),
      with("\"nan\"", "\"NaN()\""),
      with("\"nan\"", "null"),
      with("\"losses\"", "\"loss\""),
      with("\"output_counts\": []", "\"output_counts\": [1, 2, 3]"),
      with("\"ab\"", "\"" + std::string(5000, 'a') + "\""),
      with("\"elements\": 6", "\"elements\": -6"),
      with("\"sizes\": [3, 2]", "\"sizes\": [3]"),
      with("\"along\": [0, 1]", "\"along\": []"),
      with("[-1, -2]", "[-1]"),
      with("[6, 5, 4, 3, 2, 1]", "[6, 5, 4]"),
      with("\"a1 b2\", ", ""),
  };
  for (const std::string& text : broken) {
    write("record_9.json", text);
    EXPECT_FALSE(read_record(folder_)) << text.substr(0, 300);
  }
  write("record_9.json", "");
  for (const char* name : {"record_.json", "record_0.json", "record_-4.json", "record_4.json.part"})
    write(name, kRecord);
  fs::create_directory(fs::path(folder_.path()) / "record_10.json");
  ASSERT_EQ(::mkfifo((fs::path(folder_.path()) / "record_11.json").c_str(), 0600), 0);
  EXPECT_FALSE(read_record(folder_));
}

TEST_F(Reader, AnyTextIsReadOrNot) {
  std::mt19937 random(5);
  int read = 0;
  // Few of them can be read at all.
  for (int i = 0; i < std::max(3000, test::cases(3000)); ++i) {
    std::string text(kRecord);
    for (unsigned changes = 1 + random() % 4; changes > 0 && !text.empty(); --changes) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 30);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 30));
          break;
        default:
          text[at] = "0123456789[]{}\",:-eE."[random() % 21];
      }
    }
    write("record_1.json", text);
    const std::optional<RunRecord> found = read_record(folder_);
    if (!found) continue;
    ++read;
    for (const auto* numbers : {&found->losses, &found->gradient_norms, &found->output_counts})
      EXPECT_TRUE(numbers->empty() || numbers->size() == static_cast<size_t>(found->steps));
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace ridge::attach
