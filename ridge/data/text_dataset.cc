// Reads all files into one string of bytes; samples are parts of it.
#include "ridge/data/text_dataset.h"

#include <algorithm>
#include <cstring>
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

/// Bytes `begin` to `end` of a text.
struct Extent {
  int64_t begin = 0, end = 0;
};

struct Texts {
  std::vector<std::byte> bytes;  ///< The bytes of all files, with a byte 0 between them.
  std::vector<Extent> files;
};

Texts read_texts(const std::vector<fs::path>& files) {
  Texts texts;
  std::vector<std::byte>& text = texts.bytes;
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
    texts.files.push_back(
        {.begin = static_cast<int64_t>(before), .end = static_cast<int64_t>(text.size())});
  }
  text.shrink_to_fit();
  return texts;
}

std::vector<Extent> lines_of(const Texts& texts) {
  std::vector<Extent> lines;
  for (const Extent& file : texts.files)
    for (int64_t begin = file.begin; begin < file.end;) {
      const std::byte* from = texts.bytes.data() + begin;
      const auto left = static_cast<size_t>(file.end - begin);
      const auto* found = static_cast<const std::byte*>(std::memchr(from, '\n', left));
      const int64_t end = found == nullptr ? file.end : begin + (found - from);
      if (end > begin) lines.push_back({.begin = begin, .end = end});
      begin = end + 1;
    }
  return lines;
}

std::vector<Extent> files_of(const Texts& texts) {
  std::vector<Extent> files = texts.files;
  std::erase_if(files, [](const Extent& file) { return file.begin == file.end; });
  return files;
}

DataDescription description_of(int64_t context) {
  return {.kind = DataKind::kText,
          .fields = {{.name = "x", .dtype = DType::kI64, .shape = {context}},
                     {.name = "y", .dtype = DType::kI64, .shape = {context}}},
          .classes = kTokens,
          .tokenizer = std::string(kByteTokenizer)};
}

class WindowDataset final : public Dataset {
 public:
  /// Samples first to first + count - 1 of `text`.
  WindowDataset(std::vector<std::byte> text, int64_t context, int64_t first, int64_t count)
      : Dataset(description_of(context)), text_(std::move(text)), first_(first), count_(count) {}

  int64_t size() const override { return count_; }

  void read(int64_t index, const SampleKey&, std::span<void* const> out, Scratch&) const override {
    const int64_t context = fields()[0].shape[0];
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
};

class DocumentDataset final : public Dataset {
 public:
  /// After the bytes of a document comes `end`.
  DocumentDataset(std::vector<std::byte> text,
                  std::vector<Extent> documents,
                  int64_t context,
                  int64_t end)
      : Dataset(description_of(context)),
        text_(std::move(text)),
        documents_(std::move(documents)),
        end_(end) {}

  int64_t size() const override { return static_cast<int64_t>(documents_.size()); }
  int64_t length(int64_t index) const override {
    const Extent& document = documents_[index];
    return std::min(document.end - document.begin, fields()[0].shape[0]);
  }

  void read(int64_t index, const SampleKey&, std::span<void* const> out, Scratch&) const override {
    const Extent& document = documents_[index];
    const int64_t context = fields()[0].shape[0], filled = length(index);
    auto* x = static_cast<int64_t*>(out[0]);
    auto* y = static_cast<int64_t*>(out[1]);
    for (int64_t i = 0; i < filled; ++i) {
      const int64_t at = document.begin + i, next = at + 1;
      x[i] = std::to_integer<int64_t>(text_[at]);
      y[i] = next < document.end ? std::to_integer<int64_t>(text_[next]) : end_;
    }
    std::fill(x + filled, x + context, 0);
    std::fill(y + filled, y + context, kPadLabel);
  }

 private:
  std::vector<std::byte> text_;
  std::vector<Extent> documents_;
  int64_t end_;
};

/// The share of a path's samples that one data set has.
struct Part {
  const std::string& path;
  bool is_whole;
  Split split;

  Extent of(int64_t samples, const DataOptions& options) const {
    if (is_whole) return {.begin = 0, .end = samples};
    const int64_t trained = samples - eval_samples(samples, options.eval_fraction);
    return split == Split::kTrain ? Extent{.begin = 0, .end = trained}
                                  : Extent{.begin = trained, .end = samples};
  }
};

std::unique_ptr<Dataset> open_windows(Texts texts, const DataOptions& options, Part part) {
  const int64_t context = options.context;
  const int64_t samples = (static_cast<int64_t>(texts.bytes.size()) - 1) / context;
  check(samples >= 1,
        "the text at '{}' has {} bytes: too few for one sample of {} tokens and the next one",
        part.path,
        texts.bytes.size(),
        context);
  const Extent range = part.of(samples, options);
  return std::make_unique<WindowDataset>(
      std::move(texts.bytes), context, range.begin, range.end - range.begin);
}

std::unique_ptr<Dataset> open_documents(Texts texts, const DataOptions& options, Part part) {
  const bool lines = options.text_samples == TextSamples::kLines;
  std::vector<Extent> documents = lines ? lines_of(texts) : files_of(texts);
  check(!documents.empty(), "the text at '{}' is empty", part.path);
  const Extent range = part.of(static_cast<int64_t>(documents.size()), options);
  documents.erase(documents.begin() + range.end, documents.end());
  documents.erase(documents.begin(), documents.begin() + range.begin);
  return std::make_unique<DocumentDataset>(
      std::move(texts.bytes), std::move(documents), options.context, lines ? '\n' : 0);
}

}  // namespace

std::unique_ptr<Dataset> open_text_dataset(const DataOptions& options, Split split) {
  check(options.context >= 1 && options.context <= (int64_t{1} << 24),
        "context is {}: it may be 1 to 2^24",
        options.context);
  const bool separate = !options.eval_path.empty();
  const Part part{.path = separate && split == Split::kEval ? options.eval_path : options.path,
                  .is_whole = separate,
                  .split = split};
  Texts texts = read_texts(list_texts(part.path, options.extensions));
  if (options.text_samples == TextSamples::kWindows)
    return open_windows(std::move(texts), options, part);
  return open_documents(std::move(texts), options, part);
}

}  // namespace ridge::data
