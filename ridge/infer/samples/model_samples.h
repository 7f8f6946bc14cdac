// The samples that a model is run on, to compare, calibrate or time it.
#pragma once

#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/graph/data_spec.h"
#include "ridge/graph/model_source.h"
#include "ridge/infer/predict.h"

namespace ridge {

/// The outputs for each sample.
using SampleOutputs = std::vector<NamedTensors>;

/// No more rows of a user's file are read, unless more are asked for.
inline constexpr int64_t kMostSamples = 256;

struct ModelSamples {
  std::vector<NamedTensors> samples;  ///< Each has one row, or the only size that the model has.
  Binding sizes;                      ///< The sizes of a run on one of them.
  std::string rows;                   ///< dim_of_rows(); empty: a run takes one sample.
  bool is_drawn = false;              ///< Nobody gave them.

  /// "8 drawn samples", "24 of your 100 samples".
  std::string words(size_t used) const;
};

/// The first `most` rows of data that were read.
ModelSamples samples_of(const NamedRows& data,
                        const std::vector<DataSpec>& inputs,
                        const std::vector<DataSpec>& outputs,
                        int64_t most = kMostSamples);
/// The same of an NPZ whose arrays have the names of inputs. UserError as read_inputs() has it.
ModelSamples read_npz_samples(const std::string& path,
                              const std::vector<DataSpec>& inputs,
                              const std::vector<DataSpec>& outputs,
                              int64_t most = kMostSamples);
/// Drawn data: normal floats, integers that suit, as make_inputs() has them. `sizes` are those of
/// named dimensions but for the rows; UserError where one is missing.
ModelSamples drawn_samples(const ModelSource& source, const Binding& sizes, size_t count);

/// The inputs of a run on `batch` rows, sample after sample from `first` on and round again.
NamedTensors batch_of(const ModelSamples& samples,
                      const std::vector<DataSpec>& inputs,
                      size_t first,
                      int64_t batch);
/// The rows of the outputs of such a run.
SampleOutputs rows_of(NamedTensors outputs, const std::string& rows, int64_t batch);

/// Files of tensors by sample and by number in `specs`, whose names may be anything.
void write_samples(const std::string& path,
                   const std::vector<NamedTensors>& samples,
                   const std::vector<DataSpec>& specs);
std::vector<NamedTensors> read_samples(const std::string& path, const std::vector<DataSpec>& specs);

}  // namespace ridge
