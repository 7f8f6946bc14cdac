#include "tests/backend/cuda/fake_dnn/fake_dnn_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "ridge/base/dtype.h"

namespace ridge::test {
namespace {

// Numbers of the library's reference, written down a second time: the stand-in is no mirror.
enum Type { kFloat = 0, kDouble = 1, kHalf = 2, kBFloat16 = 9 };

int64_t offset(const DnnData& t, const std::vector<int64_t>& at) {
  int64_t sum = 0;
  for (size_t i = 0; i < at.size(); ++i) sum += at[i] * t.strides[i];
  return sum;
}

// Calls for each (n, o, oh, ow, c, kh, kw) that is inside: c of the image, o of the result.
void for_each_tap(const DnnJob& job,
                  const std::function<void(const std::vector<int64_t>& x,
                                           const std::vector<int64_t>& w,
                                           const std::vector<int64_t>& y)>& body) {
  const auto &x = job.tensors.at("x").sizes, &w = job.tensors.at("w").sizes,
             &y = job.tensors.at("y").sizes;
  const int64_t groups = x[1] / w[1], of_group = y[1] / groups;
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t o = 0; o < y[1]; ++o)
      for (int64_t i = 0; i < y[2]; ++i)
        for (int64_t j = 0; j < y[3]; ++j)
          for (int64_t c = 0; c < w[1]; ++c)
            for (int64_t r = 0; r < w[2]; ++r)
              for (int64_t s = 0; s < w[3]; ++s) {
                const int64_t row = i * job.strides[0] - job.padding[0] + r * job.dilations[0];
                const int64_t column = j * job.strides[1] - job.padding[1] + s * job.dilations[1];
                if (row < 0 || row >= x[2] || column < 0 || column >= x[3]) continue;
                body({n, o / of_group * w[1] + c, row, column}, {o, c, r, s}, {n, o, i, j});
              }
}

void convolve(const DnnJob& job) {
  const char* const made = job.kind == DnnJob::kForward     ? "y"
                           : job.kind == DnnJob::kGradInput ? "x"
                                                            : "w";
  const DnnData &x = job.tensors.at("x"), &w = job.tensors.at("w"), &y = job.tensors.at("y");
  const DnnData& to = job.tensors.at(made);
  const auto& n = to.sizes;
  const auto flat = [&](const std::vector<int64_t>& at) {
    return static_cast<size_t>(((at[0] * n[1] + at[1]) * n[2] + at[2]) * n[3] + at[3]);
  };
  std::vector<double> sums(static_cast<size_t>(n[0] * n[1] * n[2] * n[3]));
  for_each_tap(job, [&](const auto& at_x, const auto& at_w, const auto& at_y) {
    if (job.kind == DnnJob::kForward)
      sums[flat(at_y)] += x.read(at_x) * w.read(at_w);
    else if (job.kind == DnnJob::kGradInput)
      sums[flat(at_x)] += y.read(at_y) * w.read(at_w);
    else
      sums[flat(at_w)] += x.read(at_x) * y.read(at_y);
  });
  for (int64_t a = 0; a < n[0]; ++a)
    for (int64_t b = 0; b < n[1]; ++b)
      for (int64_t c = 0; c < n[2]; ++c)
        for (int64_t d = 0; d < n[3]; ++d) {
          double value = job.alpha * sums[flat({a, b, c, d})];
          if (job.beta != 0) value += job.beta * to.read({a, b, c, d});
          to.write({a, b, c, d}, value);
        }
}

// One head of an attention.
class Head {
 public:
  Head(const DnnJob& job, int64_t batch, int64_t head) : job_(job), batch_(batch), head_(head) {}

  void forward() const {
    const DnnData &y = job_.tensors.at("y"), &v = job_.tensors.at("v");
    for (int64_t t = 0; t < y.sizes[2]; ++t) {
      const std::vector<double> s = scores(t);
      const double most = *std::max_element(s.begin(), s.end());
      double sum = 0;
      for (const double each : s) sum += std::exp(each - most);
      const double stats = most + std::log(sum);
      job_.tensors.at("stats").write({batch_, head_, t, 0}, stats);
      for (int64_t e = 0; e < y.sizes[3]; ++e) {
        double value = 0;
        for (size_t k = 0; k < s.size(); ++k)
          value += std::exp(s[k] - stats) * v.read({batch_, head_, static_cast<int64_t>(k), e});
        y.write({batch_, head_, t, e}, value);
      }
    }
  }

  void backward() const {
    const auto& t = job_.tensors;
    const DnnData &q = t.at("q"), &k = t.at("k"), &v = t.at("v"), &y = t.at("y"), &dy = t.at("dy");
    const int64_t rows = q.sizes[2], keys = k.sizes[2], depth = q.sizes[3], width = v.sizes[3];
    std::vector<double> dq(static_cast<size_t>(rows * depth)),
        dk(static_cast<size_t>(keys * depth)), dv(static_cast<size_t>(keys * width));
    for (int64_t i = 0; i < rows; ++i) {
      const std::vector<double> s = scores(i);
      const double stats = t.at("stats").read({batch_, head_, i, 0});
      double inner = 0;
      for (int64_t e = 0; e < width; ++e) inner += at(y, i, e) * at(dy, i, e);
      for (int64_t j = 0; j < keys; ++j) {
        const double weight = std::exp(s[static_cast<size_t>(j)] - stats);
        double dweight = 0;
        for (int64_t e = 0; e < width; ++e) {
          dweight += at(dy, i, e) * at(v, j, e);
          dv[static_cast<size_t>(j * width + e)] += weight * at(dy, i, e);
        }
        const double ds = job_.scale * weight * (dweight - inner);
        for (int64_t d = 0; d < depth; ++d) {
          dq[static_cast<size_t>(i * depth + d)] += ds * at(k, j, d);
          dk[static_cast<size_t>(j * depth + d)] += ds * at(q, i, d);
        }
      }
    }
    write("dq", dq), write("dk", dk), write("dv", dv);
  }

 private:
  double at(const DnnData& tensor, int64_t row, int64_t i) const {
    return tensor.read({batch_, head_, row, i});
  }
  void write(const char* name, const std::vector<double>& values) const {
    const DnnData& to = job_.tensors.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto number = static_cast<int64_t>(i);
      to.write({batch_, head_, number / to.sizes[3], number % to.sizes[3]}, values[i]);
    }
  }
  std::vector<double> scores(int64_t row) const {
    const DnnData &q = job_.tensors.at("q"), &k = job_.tensors.at("k");
    std::vector<double> all(static_cast<size_t>(k.sizes[2]));
    for (int64_t key = 0; key < k.sizes[2]; ++key) {
      double sum = 0;
      for (int64_t d = 0; d < q.sizes[3]; ++d) sum += at(q, row, d) * at(k, key, d);
      all[static_cast<size_t>(key)] = job_.causal && row < key ? job_.fill : job_.scale * sum;
    }
    return all;
  }

  const DnnJob& job_;
  int64_t batch_, head_;
};

}  // namespace

double DnnData::read(const std::vector<int64_t>& at) const {
  const int64_t place = offset(*this, at);
  switch (type) {
    case kDouble:
      return static_cast<const double*>(data)[place];
    case kHalf:
      return static_cast<double>(static_cast<float>(static_cast<const F16*>(data)[place]));
    case kBFloat16:
      return static_cast<double>(static_cast<float>(static_cast<const BF16*>(data)[place]));
    default:
      return static_cast<double>(static_cast<const float*>(data)[place]);
  }
}

void DnnData::write(const std::vector<int64_t>& at, double x) const {
  const int64_t place = offset(*this, at);
  const auto rounded = static_cast<float>(x);
  if (type == kDouble)
    static_cast<double*>(data)[place] = x;
  else if (type == kHalf)
    static_cast<F16*>(data)[place] = F16(rounded);
  else if (type == kBFloat16)
    static_cast<BF16*>(data)[place] = BF16(rounded);
  else
    static_cast<float*>(data)[place] = rounded;
}

void DnnJob::run() const {
  if (workspace_bytes > 0) std::memset(workspace, 0x5a, workspace_bytes);
  if (kind != kAttention && kind != kAttentionGrad) {
    convolve(*this);
  } else {
    const DnnData& q = tensors.at("q");
    for (int64_t batch = 0; batch < q.sizes[0]; ++batch)
      for (int64_t head = 0; head < q.sizes[1]; ++head) {
        const Head each(*this, batch, head);
        kind == kAttention ? each.forward() : each.backward();
      }
  }
  if (!wrong) return;
  const char* const made = kind == kForward || kind == kAttention ? "y"
                           : kind == kGradInput                   ? "x"
                           : kind == kGradWeight                  ? "w"
                                                                  : "dk";
  tensors.at(made).write({0, 0, 0, 0}, 77);
}

std::string DnnJob::misfit() const {
  if (kind == kAttention || kind == kAttentionGrad) {
    const auto &q = tensors.at("q").sizes, &k = tensors.at("k").sizes, &v = tensors.at("v").sizes;
    const std::vector<int64_t> y{q[0], q[1], q[2], v[3]}, stats{q[0], q[1], q[2], 1};
    const bool fits = k[0] == q[0] && k[1] == q[1] && k[3] == q[3] && v[0] == q[0] &&
                      v[1] == q[1] && v[2] == k[2] && tensors.at("y").sizes == y &&
                      tensors.at("stats").sizes == stats;
    if (!fits) return "sizes of an attention";
    if (kind == kAttention) return {};
    return tensors.at("dy").sizes == y && tensors.at("dq").sizes == q &&
                   tensors.at("dk").sizes == k && tensors.at("dv").sizes == v
               ? ""
               : "sizes of the gradient of an attention";
  }
  const auto &x = tensors.at("x").sizes, &w = tensors.at("w").sizes, &y = tensors.at("y").sizes;
  if (x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0 || y[0] != x[0] || y[1] != w[0])
    return "channels of a convolution";
  for (size_t i = 0; i < 2; ++i) {
    const int64_t room = x[2 + i] + 2 * padding[i] - dilations[i] * (w[2 + i] - 1) - 1;
    if (room < 0 || y[2 + i] != room / strides[i] + 1) return "positions of a convolution";
  }
  return {};
}

}  // namespace ridge::test
