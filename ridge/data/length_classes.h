// Ragged samples in classes of like length, and an epoch of them in batches of one class each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// Samples of an epoch come class by class, the shortest first; what is too little for a batch
/// joins the next class. How many batches there are of each is the same in every epoch.
class LengthClasses {
 public:
  struct Class {
    int64_t length = 0;   ///< Items that samples are cut to; the last class cuts nothing.
    int64_t batch = 0;    ///< Samples of a batch.
    int64_t batches = 0;  ///< Batches of an epoch.
  };

  /// Batches of `batch` samples or, with `tokens` above 0, of as many as fit into so many items
  /// once they are cut (at least 1). Lengths are those of batch_lengths(). `dataset` must outlive
  /// it. UserError where its samples do not differ in length.
  LengthClasses(const Dataset& dataset, int64_t batch, int64_t tokens);

  const std::vector<Class>& classes() const { return classes_; }
  int64_t batches() const { return batches_; }  ///< Batches of an epoch, without the rest.
  int64_t rest() const { return rest_; }        ///< Samples that no batch of an epoch has.
  int64_t most() const { return most_; }        ///< Samples of the largest batch.

  /// Makes batches of `order`, the samples of an epoch in any order, which classes keep: batches
  /// one after the other, each class spread evenly over the epoch, the rest at the end. Where a
  /// batch begins goes to `begins`, of batches() + 1 places, the last being the rest's. A pure
  /// function of (seed, epoch) and the order. Allocates nothing.
  void arrange(std::span<int64_t> order, std::span<int64_t> begins, uint64_t seed, int64_t epoch);

  int64_t bytes() const;

 private:
  size_t class_of(int64_t sample) const;

  struct Place {
    double at = 0;  ///< In the epoch, 0 to 1.
    int64_t first = 0, count = 0;
  };

  const Dataset& dataset_;
  std::vector<Class> classes_;
  std::vector<int64_t> samples_of_;  ///< By class.
  int64_t batches_ = 0, rest_ = 0, most_ = 0;
  std::vector<int64_t> sorted_, next_;
  std::vector<Place> places_;
};

}  // namespace ridge::data
