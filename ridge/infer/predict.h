// Predictions for any number of rows: they go through a session in batches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/infer/model_session.h"

namespace ridge {

/// The data of one input, read when a batch needs them.
class InputRows {
 public:
  virtual ~InputRows() = default;

  /// The type of all rows together.
  virtual TensorType type() const = 0;
  /// Fills `rows`, of that type but for the number of rows, with those from `first` on. UserError
  /// where they cannot be read.
  virtual void read(int64_t first, Tensor& rows) = 0;
  /// A name a row, such as the path of a picture; empty where rows have none.
  virtual std::vector<std::string> names() const { return {}; }
};

/// Rows of a tensor, or a whole one.
class TensorRows final : public InputRows {
 public:
  explicit TensorRows(Tensor tensor) : tensor_(std::move(tensor)) {}

  TensorType type() const override { return tensor_.type(); }
  void read(int64_t first, Tensor& rows) override;

 private:
  Tensor tensor_;
};

using NamedRows = std::map<std::string, std::unique_ptr<InputRows>>;

struct Prediction {
  NamedTensors outputs;  ///< Those of all rows, in their order.
  int64_t rows = 0;      ///< 0: the model has no dimension of rows.
  int64_t batches = 0;
};

/// The first dimension of all outputs, where it has a name, and no other dimension of an input or
/// output has that name: its rows are samples, none of which depends on another. Empty where there
/// is none.
std::string dim_of_rows(const std::vector<DataSpec>& inputs, const std::vector<DataSpec>& outputs);

/// Runs the session on at most `batch` rows at a time, the last ones fewer, with `instances` such
/// runs at the same time. A model that has no dim_of_rows() runs once. UserError as
/// ModelSession::run() has it; where data are wrong it says in which rows.
Prediction predict(ModelSession& session,
                   const NamedRows& inputs,
                   int64_t batch,
                   int64_t instances = 1);

}  // namespace ridge
