// A model: what it takes, and how its logits are built.
#pragma once

#include <memory>
#include <string_view>

#include "ridge/nn/module.h"
#include "ridge/nn/options.h"

namespace ridge::nn {

/// The fields of one sample, without the batch axis. A float y is regressed by the mean squared
/// error; an integer y (a label, or one a position) is classified.
struct SampleTypes {
  TensorType x, y;

  bool regression() const { return is_float(y.dtype); }
};

class Model {
 public:
  Model(ModelOptions options, SampleTypes sample)
      : options_(std::move(options)), sample_(std::move(sample)) {}
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  std::string_view kind_name() const { return name_of(options_.kind); }
  DType dtype() const { return options_.dtype; }
  const ModelOptions& options() const { return options_; }
  const SampleTypes& sample() const { return sample_; }

  /// x (B, of the sample's shape and dtype) -> logits (B, outputs) or (B, T, vocab) of the model's
  /// dtype. Declares the same parameters and statistics, in the same order, in every mode.
  virtual Value logits(ModuleContext& context, Value x) const = 0;

 protected:
  /// Most blocks of one kind: beyond it a number is a slip, and the graph would fill the memory.
  static constexpr int64_t kMaxRepeats = 4096;
  /// UserError unless 0 <= p < 1.
  void check_dropout(double p) const;
  /// The same for a head of one prediction a sample, whose `outputs` must go with y.
  void check_head(int64_t outputs, double dropout) const;
  /// The same for a sample that must be an image (H, W, C), or (H, W) with one channel.
  void check_image() const;
  /// x (B, H, W, C) or (B, H, W) -> (B, H, W, C) of the model's dtype.
  Value image_of(Value x) const;

 private:
  ModelOptions options_;
  SampleTypes sample_;
};

/// UserError, saying what to change, when the options are impossible or do not go with the sample:
/// an unknown kind, a size below 1, heads that do not divide the width, a sequence beyond the
/// context, an image smaller than the stages need, targets of another shape.
std::unique_ptr<Model> make_model(const ModelOptions& options, const SampleTypes& sample);

}  // namespace ridge::nn
