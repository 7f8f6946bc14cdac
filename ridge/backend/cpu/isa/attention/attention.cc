// The softmax inside attention and its gradient, with a query to a lane: a running maximum and sum
// over blocks of keys (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#include "ridge/backend/cpu/isa/attention/attention_kernels.h"
#include "ridge/backend/cpu/isa/functions.h"
#include "ridge/backend/cpu/isa/lanes.h"

namespace ridge::cpu {
namespace {

template <typename T>
constexpr T kMinusInfinity = -static_cast<T>(__builtin_inff());

template <typename T>
void add_bias(const AttentionScores<T>& s) {
  for (int64_t r = 0; r < s.keys; ++r) {
    T* row = s.scores + r * s.stride;
    const T* bias = s.bias + r * kAttentionLanes;
    RIDGE_INDEPENDENT
    for (int64_t l = 0; l < kAttentionLanes; ++l) row[l] += bias[l];
  }
}

// Scores that lie beyond the open keys.
template <typename T>
void close_keys(const AttentionScores<T>& s) {
  // Under a causal mask, key r is closed to the queries before r + 1 - open_keys.
  for (int64_t r = s.open_keys < 0 ? 0 : s.open_keys; r < s.keys; ++r) {
    const int64_t closed = r + 1 - s.open_keys;
    const int64_t count = closed < kAttentionLanes ? closed : kAttentionLanes;
    T* row = s.scores + r * s.stride;
    for (int64_t l = 0; l < count; ++l) row[l] = kMinusInfinity<T>;
  }
}

// Scores that the mask forbids.
template <typename T>
void mask_keys(const AttentionScores<T>& s) {
  if (s.mask_stride == 0) {
    for (int64_t r = 0; r < s.keys; ++r)
      if (s.mask[r] == 0)
        for (int64_t l = 0; l < kAttentionLanes; ++l)
          s.scores[r * s.stride + l] = kMinusInfinity<T>;
    return;
  }
  for (int64_t l = 0; l < s.queries; ++l) {
    const uint8_t* mask = s.mask + l * s.mask_stride;
    T* score = s.scores + l;
    for (int64_t r = 0; r < s.keys; ++r, score += s.stride)
      *score = mask[r] != 0 ? *score : kMinusInfinity<T>;
  }
}

template <typename T>
void forbid(const AttentionScores<T>& s) {
  if (s.open_keys < s.keys) close_keys(s);
  if (s.mask != nullptr) mask_keys(s);
}

// Whether the queries may see a key of this block.
template <typename T>
void find_keys(const AttentionScores<T>& s, bool* has_key) {
  for (int64_t l = 0; l < s.queries; ++l) {
    const int64_t open = s.open_keys + l < s.keys ? s.open_keys + l : s.keys;
    uint8_t any = 0;
    for (int64_t r = 0; r < open; ++r) any |= s.mask[l * s.mask_stride + r];
    has_key[l] = has_key[l] || any != 0;
  }
}

// Combines the keys of each lane: four chains, in turn, then pairwise.
template <int kLanesUsed, typename T, class Combine>
void over_keys(const AttentionScores<T>& s, T first, Combine combine, T* results) {
  using R = typename Lanes<T>::R;
  for (int64_t lane = 0; lane < kLanesUsed; lane += R::kWidth) {
    const T* at = s.scores + lane;
    typename R::Type chain[4];
    for (auto& each : chain) each = R::set(first);
    int64_t r = 0;
    for (; r + 4 <= s.keys; r += 4)
      for (int i = 0; i < 4; ++i) chain[i] = combine(R::load(at + (r + i) * s.stride), chain[i]);
    for (int i = 0; r < s.keys; ++r, ++i) chain[i] = combine(R::load(at + r * s.stride), chain[i]);
    R::store(results + lane, combine(combine(chain[0], chain[1]), combine(chain[2], chain[3])));
  }
}

template <int kLanesUsed, typename T>
void softmax_lanes(const AttentionScores<T>& s, AttentionPanel<T>& panel) {
  using R = typename Lanes<T>::R;
  using Reg = typename R::Type;
  alignas(64) T found[kLanesUsed];
  alignas(64) T base[kLanesUsed];
  // The largest that is not NaN.
  over_keys<kLanesUsed>(s, kMinusInfinity<T>, [](Reg a, Reg b) { return R::max(a, b); }, found);
  for (int l = 0; l < kLanesUsed; ++l) {
    const T max = found[l] > panel.max[l] ? found[l] : panel.max[l];
    // If every score is -infinity, any finite maximum makes every exponential zero.
    base[l] = max > kMinusInfinity<T> ? max : T(0);
    panel.shrink[l] = exp_of(panel.max[l] - base[l]);
    panel.max[l] = max;
  }
  for (int64_t r = 0; r < s.keys; ++r) {
    T* row = s.scores + r * s.stride;
    RIDGE_INDEPENDENT
    for (int l = 0; l < kLanesUsed; ++l) row[l] = exp_of(row[l] - base[l]);
  }
  over_keys<kLanesUsed>(s, T(0), [](Reg a, Reg b) { return a + b; }, found);
  for (int l = 0; l < kLanesUsed; ++l)
    panel.sum[l] = fma_of(panel.sum[l], panel.shrink[l], found[l]);
}

template <typename T>
void softmax(const AttentionScores<T>& s, AttentionPanel<T>& panel) {
  if (s.bias != nullptr) add_bias(s);
  forbid(s);
  if (s.mask != nullptr) find_keys(s, panel.has_key);
  if (s.queries <= kAttentionLanes / 2)
    softmax_lanes<kAttentionLanes / 2>(s, panel);
  else
    softmax_lanes<kAttentionLanes>(s, panel);
}

template <typename T>
void finish(const AttentionPanel<T>& panel, T* results, int64_t width, T* logsumexp) {
  alignas(64) T factor[kAttentionLanes];
  for (int64_t l = 0; l < kAttentionLanes; ++l) {
    factor[l] = panel.has_key[l] ? T(1) / panel.sum[l] : T(0);
    logsumexp[l] = panel.has_key[l] ? panel.max[l] + log_of(panel.sum[l]) : T(0);
  }
  for (int64_t e = 0; e < width; ++e, results += kAttentionLanes)
    for (int64_t l = 0; l < kAttentionLanes; ++l) results[l] *= factor[l];
}

template <int kLanesUsed, typename T>
void differentiate_lanes(
    const AttentionScores<T>& s, const T* logsumexp, const T* delta, T scale, T* dweights) {
  for (int64_t r = 0; r < s.keys; ++r) {
    T* row = s.scores + r * s.stride;
    T* drow = dweights + r * s.stride;
    RIDGE_INDEPENDENT
    for (int l = 0; l < kLanesUsed; ++l) {
      const T weight = exp_of(row[l] - logsumexp[l]);
      row[l] = weight;
      drow[l] = weight * (drow[l] - delta[l]) * scale;
    }
  }
}

template <typename T>
void differentiate(
    const AttentionScores<T>& s, const T* logsumexp, const T* delta, T scale, T* dweights) {
  forbid(s);
  if (s.queries <= kAttentionLanes / 2)
    differentiate_lanes<kAttentionLanes / 2>(s, logsumexp, delta, scale, dweights);
  else
    differentiate_lanes<kAttentionLanes>(s, logsumexp, delta, scale, dweights);
}

template <typename T>
void column_products(const T* a, const T* b, int64_t n, T* sums) {
  using R = typename Lanes<T>::R;
  for (int64_t lane = 0; lane < kAttentionLanes; lane += R::kWidth) {
    typename R::Type sum = R::set(T(0));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i * kAttentionLanes + lane;
      sum = R::fma(R::load(a + at), R::load(b + at), sum);
    }
    R::store(sums + lane, sum);
  }
}

template <typename T>
constexpr AttentionKernels<T> kKernels = {
    RIDGE_ISA::attention_multiply, softmax<T>, finish<T>, differentiate<T>, column_products<T>};

}  // namespace

namespace RIDGE_ISA {
const AttentionKernels<float> attention_f32 = kKernels<float>;
const AttentionKernels<double> attention_f64 = kKernels<double>;
}  // namespace RIDGE_ISA

}  // namespace ridge::cpu
