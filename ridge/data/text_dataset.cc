// Reads all files into one string of bytes; samples are windows of it.
#include "ridge/data/text_dataset.h"

#include <algorithm>
#include <filesystem>

#include "ridge/base/error.h"
#include "ridge/data/image_files.h"
#include "ridge/data/order.h"

namespace ridge::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTokens = 256;
constexpr int64_t kMaxBytes = int64_t{1} << 40;

bool ends_as_wanted(const std::string& path, const std::vector<std::string>& extensions) {
  return extensions.empty() ||
         std::any_of(extensions.begin(), extensions.end(), [&path](const std::string& end) {
           return path.ends_with(end);
         });
}

/// The files below `path`, or itself, sorted by path.
std::vector<fs::path> list_texts(const std::string& path,
                                 const std::vector<std::string>& extensions) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return {path};
  fs::recursive_directory_iterator entries(path, error);
  check(!error, "cannot read '{}': {}", path, error.message());
  std::vector<fs::path> files;
  for (; entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    check(!error, "cannot read below '{}': {}", path, error.message());
    if (entries->is_regular_file(error) && ends_as_wanted(entries->path().string(), extensions))
      files.push_back(entries->path());
  }
  check(!files.empty(), "no file for text below '{}'", path);
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    return a.generic_string() < b.generic_string();
  });
  return files;
}

std::vector<std::byte> read_texts(const std::vector<fs::path>& files) {
  std::vector<std::byte> text;
  for (const fs::path& file : files) {
    if (!text.empty()) text.push_back(std::byte{0});
    std::error_code error;
    const uintmax_t size = fs::file_size(file, error);
    check(!error, "cannot read '{}': {}", file.string(), error.message());
    check(static_cast<int64_t>(text.size() + size) <= kMaxBytes,
          "the text is larger than {} bytes",
          kMaxBytes);
    const size_t before = text.size();
    text.resize(before + size + 1);
    const size_t count = read_whole(file.string(), std::span(text).subspan(before)).size();
    text.resize(before + count);
  }
  text.shrink_to_fit();
  return text;
}

class TextDataset : public Dataset {
 public:
  /// Samples first to first + count - 1 of `text`.
  TextDataset(std::vector<std::byte> text, int64_t context, int64_t first, int64_t count)
      : text_(std::move(text)),
        first_(first),
        count_(count),
        fields_{{.name = "x", .dtype = DType::kI64, .shape = {context}},
                {.name = "y", .dtype = DType::kI64, .shape = {context}}} {}

  int64_t size() const override { return count_; }
  const std::vector<FieldType>& fields() const override { return fields_; }
  int64_t classes() const override { return kTokens; }

  void read(int64_t index, const SampleKey&, std::span<void* const> out, Scratch&) const override {
    const int64_t context = fields_[0].shape[0];
    const std::byte* from = text_.data() + (first_ + index) * context;
    auto* x = static_cast<int64_t*>(out[0]);
    auto* y = static_cast<int64_t*>(out[1]);
    for (int64_t i = 0; i < context; ++i) {
      x[i] = std::to_integer<int64_t>(from[i]);
      y[i] = std::to_integer<int64_t>(from[i + 1]);
    }
  }

 private:
  std::vector<std::byte> text_;
  int64_t first_, count_;
  std::vector<FieldType> fields_;
};

}  // namespace

std::unique_ptr<Dataset> open_text_dataset(const DataOptions& options, Split split) {
  const int64_t context = options.context;
  check(
      context >= 1 && context <= (int64_t{1} << 24), "context is {}: it may be 1 to 2^24", context);
  const bool separate = !options.eval_path.empty();
  const std::string& path = separate && split == Split::kEval ? options.eval_path : options.path;
  std::vector<std::byte> text = read_texts(list_texts(path, options.extensions));
  const int64_t samples = (static_cast<int64_t>(text.size()) - 1) / context;
  check(samples >= 1,
        "the text at '{}' has {} bytes: too few for one sample of {} tokens and the next one",
        path,
        text.size(),
        context);
  if (separate) return std::make_unique<TextDataset>(std::move(text), context, 0, samples);
  const int64_t held = eval_samples(samples, options.eval_fraction);
  const bool train = split == Split::kTrain;
  return std::make_unique<TextDataset>(
      std::move(text), context, train ? 0 : samples - held, train ? samples - held : held);
}

}  // namespace ridge::data
