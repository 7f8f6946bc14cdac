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
struct Interval {
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
std::optional<Interval> median_interval(std::span<const double> values, double confidence);

/// Median of the n (n + 1) / 2 Walsh averages (x_i + x_j) / 2, i <= j (Hodges and Lehmann, 1963).
/// Takes memory for all of them: n at most 10,000.
double hodges_lehmann(std::span<const double> values);

/// For the centre of a symmetric population: order statistics of the Walsh averages, from the
/// distribution of Wilcoxon's signed-rank sum (the test inverted). Exact for n up to 500, by its
/// normal approximation above. Nothing when n is too small (below 6 for 0.95).
std::optional<Interval> signed_rank_interval(std::span<const double> values, double confidence);

/// The ratio of what pairs of measurements have in common, after / before, below 1 when `after`
/// is faster. All on logarithms: positive values only.
struct PairedRatio {
  double ratio = 1;                  // exp of the centre of log(after / before)
  std::optional<Interval> interval;  // nothing when there are too few pairs
};

enum class PairedMethod {
  kSignTest,   // centre: median; assumes nothing
  kSignedRank  // centre: Hodges-Lehmann; narrower, assumes symmetric log ratios
};

/// `before[i]` and `after[i]` were measured together; the order of pairs does not matter.
PairedRatio paired_ratio(std::span<const double> before,
                         std::span<const double> after,
                         double confidence,
                         PairedMethod method = PairedMethod::kSignedRank);

struct Line {
  double slope = 0;
  double intercept = 0;
};

/// Theil-Sen: the median of the slopes between all pairs of points with different x, and the
/// median of y - slope * x (Sen, 1968). Up to 10,000 points; at least two different x.
Line theil_sen(std::span<const double> x, std::span<const double> y);

}  // namespace ridge
