// Dynamic programming over the lengths at which to cut: what a set of them costs is the sum over
// its members of the length times the chance that a batch's longest sample needs it.
#include "ridge/data/lengths.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/error.h"

namespace ridge::data {
namespace {

// Rows of a cut batch fill whole registers.
constexpr int64_t kMultiple = 8;
constexpr int64_t kMostPlaces = 128;
constexpr double kWorth = 0.99;

/// Lengths that may be chosen, ascending, the last being the whole; and the chance that no sample
/// of a batch is longer.
struct Place {
  int64_t length = 0;
  double chance = 0;
};

std::vector<Place> places_of(const Dataset& dataset, int64_t batch) {
  const int64_t whole = dataset.fields()[0].shape[0];
  const int64_t coarse = (whole + kMostPlaces - 1) / kMostPlaces;
  const int64_t step = (coarse + kMultiple - 1) / kMultiple * kMultiple;
  std::vector<int64_t> counts(static_cast<size_t>((whole + step - 1) / step));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const int64_t length = dataset.length(i);
    check_internal(length >= 1 && length <= whole, "[batch_lengths] a length of {}", length);
    ++counts[static_cast<size_t>((length - 1) / step)];
  }
  std::vector<Place> places;
  int64_t fit = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    fit += counts[i];
    const double share = static_cast<double>(fit) / static_cast<double>(dataset.size());
    places.push_back({.length = std::min(whole, static_cast<int64_t>(i + 1) * step),
                      .chance = std::pow(share, static_cast<double>(batch))});
  }
  return places;
}

/// The cheapest way to cover the places up to one with so many lengths, the last being its own.
struct Way {
  double cost = std::numeric_limits<double>::infinity();
  size_t before = 0;  ///< The length before the last.
};

}  // namespace

std::vector<int64_t> batch_lengths(const Dataset& dataset, int64_t batch) {
  if (dataset.size() == 0 || dataset.length(0) == 0) return {};
  const std::vector<Place> places = places_of(dataset, batch);
  std::vector<std::vector<Way>> ways(1);
  for (const Place& place : places)
    ways[0].push_back({.cost = static_cast<double>(place.length) * place.chance});
  for (int64_t more = 1; more <= kBatchLengths; ++more) {
    std::vector<Way> next(places.size());
    for (size_t i = 1; i < places.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const double cost = ways.back()[j].cost + static_cast<double>(places[i].length) *
                                                      (places[i].chance - places[j].chance);
        if (cost < next[i].cost) next[i] = {.cost = cost, .before = j};
      }
    if (next.back().cost > kWorth * ways.back().back().cost) break;
    ways.push_back(std::move(next));
  }
  std::vector<int64_t> lengths;
  size_t at = places.size() - 1;
  for (size_t many = ways.size() - 1; many > 0; --many) {
    at = ways[many][at].before;
    lengths.push_back(places[at].length);
  }
  std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

}  // namespace ridge::data
