// The example configurations, with inputs made for a test.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ridge/config/text.h"
#include "ridge/io/jpeg.h"
#include "tests/support/temp_folder.h"
#include "tools/texture_picture.h"

namespace ridge::test {

inline const std::vector<std::string> kExamples = {
    "fashion_mlp", "fashion_mnist", "gpt_text", "jpeg_folder", "mlp_table"};

/// The files that examples expect in build/, in a folder of their own.
class ExampleInputs {
 public:
  /// Makes the files that `example` reads from build/; none for one that reads what Debian
  /// installs.
  explicit ExampleInputs(std::string example) : example_(std::move(example)) {
    if (example_ == "mlp_table") make_table();
    if (example_ == "jpeg_folder") make_pictures();
  }

  /// Why the example cannot be run here; empty where it can.
  std::string missing() const {
    const std::string path = example_.starts_with("fashion_") ? "/usr/share/datasets/fashion-mnist"
                             : example_ == "gpt_text"         ? "/usr/include/c++"
                                                              : folder_.path().string();
    return std::filesystem::exists(path) ? "" : "there is no " + path;
  }

  /// The example with its input taken from here and `flags` ("train.steps=5") laid over it;
  /// what it writes goes away with this.
  TrainConfig config(const std::vector<std::string>& flags) const {
    std::vector<ConfigFlag> all{parse_set("train.out=" + (folder_ / "out").string())};
    if (example_ == "mlp_table")
      all.push_back(parse_set("data.path=" + (folder_ / "table.csv").string()));
    if (example_ == "jpeg_folder")
      all.push_back(parse_set("data.path=" + (folder_ / "pictures").string()));
    for (const std::string& flag : flags) all.push_back(parse_set(flag));
    Settings scratch;
    return load_config_file("examples/" + example_ + ".toml", all, scratch).config;
  }

 private:
  void make_table() const {
    const std::string command =
        "python3 tools/make_table " + (folder_ / "table.csv").string() + " --rows 1500";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }

  // Makes pictures like tools/make_jpeg_folder, but fewer.
  void make_pictures() const {
    constexpr int64_t kPictures = 24;
    for (size_t label = 0; label < tools::kTextureNames.size(); ++label) {
      const auto below = folder_ / "pictures" / tools::kTextureNames[label];
      std::filesystem::create_directories(below);
      for (int64_t i = 0; i < kPictures; ++i) {
        const auto picture = tools::texture_picture(static_cast<int64_t>(label), i, 1);
        const auto jpeg = encode_jpeg(picture.pixels, picture.size, {.quality = 87});
        std::ofstream(below / (std::to_string(i) + ".jpg"), std::ios::binary)
            .write(reinterpret_cast<const char*>(jpeg.data()),
                   static_cast<std::streamsize>(jpeg.size()));
      }
    }
  }

  std::string example_;
  TempFolder folder_;
};

}  // namespace ridge::test
