// The options of data sets and loaders; a configuration file fills these in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/base/named_enum.h"

namespace ridge::data {

enum class DataKind : uint8_t { kIdx, kImages, kTable, kText, kRandom };
constexpr std::string_view names_of(DataKind) { return "idx|images|table|text|random"; }

/// Whether the target of a table is a class or a number.
enum class TableTask : uint8_t { kClassify, kRegress };
constexpr std::string_view names_of(TableTask) { return "classify|regress"; }

/// Windows of the whole text, or each line or file of it.
enum class TextSamples : uint8_t { kWindows, kLines, kFiles };
constexpr std::string_view names_of(TextSamples) { return "windows|lines|files"; }

/// The part of a picture that is resized to a sample: a random one, the middle, or the whole.
enum class Crop : uint8_t { kRandom, kCenter, kNone };
constexpr std::string_view names_of(Crop) { return "random|center|none"; }

/// A file that cannot be read is skipped and counted, or ends the run.
enum class OnError : uint8_t { kSkip, kFail };
constexpr std::string_view names_of(OnError) { return "skip|fail"; }

/// Samples of different lengths are padded to the context, or to the longest of their batch.
enum class Padding : uint8_t { kContext, kLongest };
constexpr std::string_view names_of(Padding) { return "context|longest"; }

/// The most pixels that a side of a picture may have as a sample.
inline constexpr int64_t kMostPictureSize = 4096;

struct DataOptions {
  DataKind kind = DataKind::kRandom;
  /// idx, table: the training file (images or rows); images: a folder with one subfolder a class;
  /// text: a folder (all files whose names end as in `extensions`) or one file.
  std::string path{};
  std::string labels{};                    ///< idx: the file of labels.
  std::string eval_path{}, eval_labels{};  ///< Data to evaluate on; empty: a part of `path`.
  double eval_fraction = 0.1;              ///< Share to evaluate on where eval_path is empty.
  std::vector<std::string> extensions{};   ///< text: such as ".h"; empty: every file.
  std::string target = "label";            ///< table: the column to predict.
  TableTask task = TableTask::kClassify;   ///< table: a class or a number.
  int64_t context = 128;                   ///< text: tokens a sample, at most.
  TextSamples text_samples = TextSamples::kWindows;  ///< text: how it is cut.
  int64_t size = 224;                                ///< images: height and width after the crop.
  Crop crop = Crop::kRandom;                         ///< images: the part that is resized.
  bool flip = false;  ///< idx, images: mirrored with probability 1/2 in training.
  int64_t shift = 0;  ///< idx: moved by up to so many pixels in training.
  std::vector<double> mean{}, deviation{};  ///< A channel each: (x / 255 - mean) / deviation.
  OnError on_error = OnError::kSkip;        ///< images: for a file that cannot be read.
  // random:
  int64_t samples = 1024;
  std::vector<int64_t> shape{32};  ///< Shape of one sample's x.
  int64_t classes = 10;            ///< Labels, or the vocabulary of tokens.
  bool tokens = false;             ///< x and y are token ids of that shape.

  /// Whether samples differ in length.
  bool is_ragged() const {
    return kind == DataKind::kText && text_samples != TextSamples::kWindows;
  }
  /// Whether each sample is read from disk and decoded, which LoaderOptions::cache does only once.
  bool is_cacheable() const { return kind == DataKind::kImages; }
};

struct LoaderOptions {
  int64_t workers = 2;   ///< Threads that load ahead; 0 loads in the caller.
  int64_t prefetch = 4;  ///< Batches ready or being made at most.
  bool cache = false;    ///< Keep samples in memory after the first read, before augmentation.
  Padding pad = Padding::kContext;  ///< Ragged samples: how far they are padded.
  bool buckets = false;             ///< Ragged samples: those of like length meet in a batch.
  int64_t tokens = 0;  ///< Above 0: in buckets, as many samples as fit into so many tokens.
};

}  // namespace ridge::data
