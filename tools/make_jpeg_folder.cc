// Makes a folder of JPEGs, one subfolder a class, for examples/jpeg_folder.toml and benchmarks.
//
// make_jpeg_folder FOLDER [PICTURES_A_CLASS [SEED]]
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "ridge/io/jpeg.h"
#include "tools/texture_picture.h"

namespace {

void make_folder(const std::filesystem::path& folder, int64_t pictures, uint64_t seed) {
  for (size_t label = 0; label < ridge::tools::kTextureNames.size(); ++label) {
    const auto below = folder / ridge::tools::kTextureNames[label];
    std::filesystem::create_directories(below);
    for (int64_t i = 0; i < pictures; ++i) {
      const auto picture = ridge::tools::texture_picture(static_cast<int64_t>(label), i, seed);
      const auto jpeg = ridge::encode_jpeg(picture.pixels, picture.size, {.quality = 87});
      std::ofstream file(below / fmt::format("{:05}.jpg", i), std::ios::binary);
      file.write(reinterpret_cast<const char*>(jpeg.data()),
                 static_cast<std::streamsize>(jpeg.size()));
      file.close();
      if (!file) throw std::runtime_error(fmt::format("cannot write into '{}'", below.string()));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4 || argv[1][0] == '-') {
    fmt::print(stderr, "usage: make_jpeg_folder FOLDER [PICTURES_A_CLASS [SEED]]\n");
    return 2;
  }
  try {
    const int64_t pictures = argc > 2 ? std::atoll(argv[2]) : 100;
    const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
    make_folder(argv[1], pictures, seed);
    fmt::print(stderr, "{} pictures in '{}'\n", 4 * pictures, argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_jpeg_folder: {}\n", error.what());
    return 2;
  }
  return 0;
}
