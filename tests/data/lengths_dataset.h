// Samples of given lengths, without contents.
#pragma once

#include <utility>
#include <vector>

#include "ridge/data/dataset.h"

namespace ridge::test {

class Lengths final : public data::Dataset {
 public:
  Lengths(std::vector<int64_t> lengths, int64_t whole)
      : Dataset({.fields = {{.name = "x", .dtype = DType::kI64, .shape = {whole}}}}),
        lengths_(std::move(lengths)) {}
  int64_t size() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t index) const override { return lengths_[static_cast<size_t>(index)]; }
  void read(int64_t,
            const data::SampleKey&,
            std::span<void* const>,
            data::Scratch&) const override {}

 private:
  std::vector<int64_t> lengths_;
};

}  // namespace ridge::test
