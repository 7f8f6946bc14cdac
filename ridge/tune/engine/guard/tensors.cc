#include "ridge/tune/engine/guard/tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/unit_roundoff.h"

namespace ridge {
namespace {

using Kind = Compared::Kind;

void add_parameter(std::vector<Compared>& list,
                   const std::string& name,
                   const nn::OptimizerOptions& o) {
  const std::vector<std::string> moments = nn::moment_names(o, name);
  const double beta = o.kind == nn::OptimizerKind::kAdamW ? o.beta1 : o.momentum;
  const double scale = o.kind == nn::OptimizerKind::kAdamW ? 1.0 / (1.0 - o.beta1) : 1.0;
  if (!moments.empty())
    list.push_back({name + ": gradient", Kind::kGradient, moments[0], beta, scale});
  if (!can_match_moments(o)) list.push_back({name + ": update", Kind::kUpdate, name, 1.0, 1.0});
}

// What one batch adds to the sums of squares.
struct BatchSums {
  double ff = 0, fr = 0, fc = 0, error_r = 0, error_c = 0, floor = 0, control = 0, noise = 0;
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::isfinite(sum) ? sum : std::numeric_limits<double>::infinity();
}

double error_ratio(double candidate, double reference) {
  if (candidate == 0) return 0;
  return reference > 0 ? std::sqrt(candidate / reference) : std::numeric_limits<double>::infinity();
}

void add_piece(BatchSums& sums, const Compared& compared, const StepTensors& tensors, Piece piece) {
  const std::vector<double> before = to_doubles(tensors.before, piece);
  const auto values = [&](const Tensor& after) {
    std::vector<double> result = to_doubles(after, piece);
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = (result[i] - compared.keep * before[i]) * compared.scale;
    return result;
  };
  const std::vector<double> r = values(tensors.reference), c = values(tensors.candidate),
                            f = values(tensors.oracle);
  sums.ff += dot(f, f);
  sums.fr += dot(f, r);
  sums.fc += dot(f, c);
  sums.error_r += squared_distance(r, f);
  sums.error_c += squared_distance(c, f);
  const auto stored = to_doubles(tensors.reference, piece);
  const double roundoff = unit_roundoff(tensors.reference.type().dtype) * compared.scale;
  sums.floor += dot(stored, stored) * roundoff * roundoff;
  if (tensors.control != nullptr) sums.control += squared_distance(values(*tensors.control), f);
  if (tensors.previous != nullptr) sums.noise += squared_distance(values(*tensors.previous), r);
}

}  // namespace

bool can_match_moments(const nn::OptimizerOptions& o) {
  return o.kind == nn::OptimizerKind::kAdamW ? o.beta1 > 0 && o.beta2 > 0 : o.momentum > 0;
}

std::vector<Compared> compared_tensors(const Variant& variant,
                                       const nn::OptimizerOptions& optimizer) {
  std::vector<Compared> list;
  for (const StateEntry& entry : variant.entries()) {
    if (entry.role == StateRole::kParameter) add_parameter(list, entry.name, optimizer);
    if (entry.role == StateRole::kStatistic)
      list.push_back({entry.name + ": change", Kind::kStatistic, entry.name, 1.0, 1.0});
  }
  return list;
}

std::vector<double> to_doubles(const Tensor& tensor, Piece piece) {
  std::vector<double> values(static_cast<size_t>(piece.count));
  dispatch(tensor.type().dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto from = tensor.span<T>().subspan(static_cast<size_t>(piece.first));
    for (size_t i = 0; i < values.size(); ++i) values[i] = convert<double>(from[i]);
  });
  return values;
}

void add_batch(GroupSums& sums, const Compared& compared, const StepTensors& tensors) {
  BatchSums batch;
  for_pieces(tensors.before.elements(),
             [&](Piece piece) { add_piece(batch, compared, tensors, piece); });
  const double ratio = error_ratio(batch.error_c, std::max(batch.error_r, batch.floor));
  const double share = error_ratio(batch.error_c, batch.ff);
  sums.least_ratio = sums.count == 0 ? ratio : std::min(sums.least_ratio, ratio);
  sums.least_error = sums.count == 0 ? share : std::min(sums.least_error, share);
  ++sums.count;
  sums.ff += batch.ff;
  sums.fr += batch.fr;
  sums.fc += batch.fc;
  sums.error_r += batch.error_r;
  sums.error_c += batch.error_c;
  sums.floor += batch.floor;
  sums.control += batch.control;
  if (tensors.previous == nullptr) return;
  sums.noise += 0.5 * batch.noise;
  ++sums.noise_count;
}

}  // namespace ridge
