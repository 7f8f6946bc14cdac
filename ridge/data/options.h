// The options of data sets and loaders; a configuration file fills these in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/base/dtype.h"

namespace ridge::data {

struct DataOptions {
  std::string kind = "random";  ///< idx, images, table, text, random
  /// idx, table: the training file (images or rows); images: a folder with one subfolder a class;
  /// text: a folder (all files whose names end as in `extensions`) or one file.
  std::string path{};
  std::string labels{};                    ///< idx: the file of labels.
  std::string eval_path{}, eval_labels{};  ///< Data to evaluate on; empty: a part of `path`.
  double eval_fraction = 0.1;              ///< Share to evaluate on where eval_path is empty.
  std::vector<std::string> extensions{};   ///< text: such as ".h"; empty: every file.
  std::string target = "label";            ///< table: the column to predict.
  std::string task = "classify";           ///< classify, regress (tables)
  int64_t context = 128;                   ///< text: tokens a sample, at most.
  std::string text_samples = "windows";    ///< text: windows of the whole, lines, files
  int64_t size = 224;                      ///< images: height and width after the crop.
  std::string crop = "random";             ///< images: random (resized crop), center, none (resize)
  bool flip = false;  ///< idx, images: mirrored with probability 1/2 in training.
  int64_t shift = 0;  ///< idx: moved by up to so many pixels in training.
  std::vector<double> mean{}, deviation{};  ///< A channel each: (x / 255 - mean) / deviation.
  std::string on_error = "skip";  ///< images: skip (and count) what cannot be read, or fail
  // random:
  int64_t samples = 1024;
  std::vector<int64_t> shape{32};  ///< Shape of one sample's x.
  int64_t classes = 10;            ///< Labels, or the vocabulary of tokens.
  bool tokens = false;             ///< x and y are token ids of that shape.

  /// Whether samples differ in length.
  bool is_ragged() const { return kind == "text" && text_samples != "windows"; }
  /// Whether each sample is read from disk and decoded, which LoaderOptions::cache does only once.
  bool is_cacheable() const { return kind == "images"; }
};

struct LoaderOptions {
  int64_t workers = 2;   ///< Threads that load ahead; 0 loads in the caller.
  int64_t prefetch = 4;  ///< Batches ready or being made at most.
  bool cache = false;    ///< Keep samples in memory after the first read, before augmentation.
  std::string pad = "context";  ///< Ragged samples: context, longest (of their batch)
  bool buckets = false;         ///< Ragged samples: those of like length meet in a batch.
  int64_t tokens = 0;  ///< Above 0: in buckets, as many samples as fit into so many tokens.
};

}  // namespace ridge::data
