// Robust statistics of small samples of times. No function assumes a normal distribution; every
// interval is exact (from a null distribution), never from resampling. Samples must be non-empty
// and finite, else InternalError.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace ridge {

/// A two-sided confidence interval. `confidence` is the coverage that it really has, at least the
/// one asked for, since the distributions behind it are discrete.
struct ConfidenceInterval {
  double low = 0;
  double high = 0;
  double confidence = 0;
};

/// The middle value, or the mean of the two middle ones.
double median(std::span<const double> values);

/// Median of the distances from the median, unscaled. Times 1.4826 it estimates the standard
/// deviation of normal data.
double median_absolute_deviation(std::span<const double> values);

/// Quantile of type 7 (Hyndman and Fan, 1996): linear between the order statistics around
/// (n - 1) * p, for p in [0, 1]. The default of NumPy and R.
double quantile(std::span<const double> values, double p);

/// For the median of the population: order statistics k and n + 1 - k with the largest k for
/// which Binomial(n, 1/2) leaves at most (1 - confidence) / 2 below k (the sign test inverted).
/// No assumption but independence. Nothing when n is too small (below 6 for 0.95).
std::optional<ConfidenceInterval> median_interval(std::span<const double> values,
                                                  double confidence);

}  // namespace ridge
