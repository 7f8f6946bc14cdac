// Rate of the image loader: decode, random resized crop to 224, mirror, normalise, in batches.
// bench/image_loader.py compares with torchvision.
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "bench/exit_code.h"
#include "bench/options.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/data/loader.h"
#include "ridge/io/jpeg.h"
#include "tools/texture_picture.h"

namespace ridge {
namespace {

constexpr const char* kUsage =
    "usage: bench_image_loader [--folder DIR] [--workers N] [--batch N] [--seconds S] [--json "
    "FILE]\n"
    "without a folder it makes 64 pictures of its own\n";

struct Options {
  std::string folder, json;
  int64_t workers = usable_cpus();
  int64_t batch = 64;
  double seconds = 3;
};

/// Pictures in a folder that is removed at the end.
class OwnFolder {
 public:
  OwnFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ridge-bench-XXXXXX").string();
    check(mkdtemp(name.data()) != nullptr, "cannot make a folder for pictures");
    path_ = name;
    for (int64_t label = 0; label < 4; ++label) {
      const auto below = path_ / tools::kTextureNames[label];
      std::filesystem::create_directories(below);
      for (int64_t i = 0; i < 16; ++i) {
        const auto picture = tools::texture_picture(label, i, 1);
        const auto jpeg = encode_jpeg(picture.pixels, picture.size, {.quality = 87});
        std::ofstream(below / fmt::format("{}.jpg", i), std::ios::binary)
            .write(reinterpret_cast<const char*>(jpeg.data()),
                   static_cast<std::streamsize>(jpeg.size()));
      }
    }
  }
  ~OwnFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

struct Result {
  double images_per_second = 0;
  int64_t images = 0, staging_bytes = 0;
};

Result measure(const Options& options, const std::string& folder) {
  data::DataOptions about{.kind = data::DataKind::kImages, .path = folder, .eval_path = folder};
  about.flip = true;
  about.on_error = data::OnError::kFail;
  about.mean = {0.485, 0.456, 0.406};
  about.deviation = {0.229, 0.224, 0.225};
  const auto dataset = data::open_dataset(about, data::Split::kTrain);
  data::Loader loader(*dataset,
                      {.batch = std::min(options.batch, dataset->size()), .seed = 1},
                      {.workers = options.workers});
  // Samples that were loaded ahead before the clock runs are not counted.
  for (int i = 0; i < 6; ++i) loader.next();
  const int64_t before = loader.stats().samples, start = now_ns();
  double seconds = 0;
  while (seconds < options.seconds) {
    loader.next();
    seconds = static_cast<double>(now_ns() - start) * 1e-9;
  }
  Result result;
  result.images = loader.stats().samples - before;
  result.images_per_second = static_cast<double>(result.images) / seconds;
  result.staging_bytes = loader.staging_bytes();
  return result;
}

void write_json(const Options& options, const Result& result, std::ostream& out) {
  JsonWriter writer(out);
  writer.begin_object()
      .field("schema", "ridge.bench.image_loader/1")
      .field("workers", options.workers)
      .field("batch", options.batch)
      .field("images", result.images)
      .field("images_per_second", result.images_per_second)
      .field("staging_bytes", result.staging_bytes)
      .end_object()
      .finish();
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  return ridge::bench::exit_code([&] {
    ridge::Options options;
    if (!ridge::bench::read_options(
            argc,
            argv,
            ridge::kUsage,
            {ridge::bench::text_option("--folder", options.folder),
             ridge::bench::text_option("--json", options.json),
             {"--workers",
              [&](const std::string& value) { options.workers = std::atoll(value.c_str()); }},
             {"--batch",
              [&](const std::string& value) { options.batch = std::atoll(value.c_str()); }},
             {"--seconds",
              [&](const std::string& value) { options.seconds = std::atof(value.c_str()); }}}))
      return;
    ridge::Result result;
    if (options.folder.empty())
      result = ridge::measure(options, ridge::OwnFolder().path());
    else
      result = ridge::measure(options, options.folder);
    fmt::print("{:.0f} images/s with {} workers, staging {:.1f} MB\n",
               result.images_per_second,
               options.workers,
               static_cast<double>(result.staging_bytes) * 1e-6);
    if (!options.json.empty()) {
      std::ofstream file(options.json);
      ridge::write_json(options, result, file);
    }
  });
}
