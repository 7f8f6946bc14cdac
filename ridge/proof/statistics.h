// The statistics of the guard.
#pragma once

#include <cstdint>
#include <vector>

namespace ridge {

/// Distribution function of Student's t with `freedom` degrees of freedom, above 0.
double student_cdf(double t, double freedom);
/// Its inverse, for p in (0, 1).
double student_quantile(double p, double freedom);

/// One tensor in the steps of one group: a state, a step number, a kind of batch. Sums over the
/// group's batches of squared norms and dot products over the elements: F is the oracle's tensor,
/// R the reference's, C the candidate's.
struct GroupSums {
  int64_t step = 0;
  int64_t count = 0;
  double ff = 0;                    ///< F F
  double fr = 0, fc = 0;            ///< F R, F C
  double error_r = 0, error_c = 0;  ///< (R - F)^2, (C - F)^2
  double control = 0;               ///< (F of what is rounded to the lower precision - F)^2.
  double floor = 0;                 ///< Squared error of rounding the stored results once.
  double noise = 0;                 ///< Half of (R - R of the batch before)^2: its variance.
  int64_t noise_count =
      0;  ///< Batches in `noise`.
          /// Over the batches: the least of C's error over R's or the floor's, and over |F|.
  double least_ratio = 0, least_error = 0;
};

/// Slope of candidate on reference, with the oracle as instrument: noise in either does not bend
/// it. Groups count as independent, batches of one group do not, for they share the parameters.
struct Slope {
  double value = 1;
  double error = 0;  ///< Standard error; an infinity where there are too few groups.
  double freedom = 0;
};
/// `value` is NaN where there is nothing to regress on.
Slope slope_of(const std::vector<GroupSums>& groups);

}  // namespace ridge
