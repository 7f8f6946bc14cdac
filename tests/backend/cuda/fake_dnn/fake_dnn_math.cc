#include "tests/backend/cuda/fake_dnn/fake_dnn_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "tests/backend/cuda/fake_numbers.h"

namespace ridge::test {
namespace {

// Numbers of the library's reference, written down a second time: the stand-in is no mirror.
enum Type { kFloat = 0, kDouble = 1, kHalf = 2, kInt32 = 4, kBFloat16 = 9, kBool = 11 };

DType dtype_of(int type) {
  return type == kDouble     ? DType::kF64
         : type == kInt32    ? DType::kI32
         : type == kBool     ? DType::kBool
         : type == kHalf     ? DType::kF16
         : type == kBFloat16 ? DType::kBF16
                             : DType::kF32;
}

int64_t offset(const DnnData& t, const std::vector<int64_t>& at) {
  int64_t sum = 0;
  for (size_t i = 0; i < at.size(); ++i) sum += at[i] * t.strides[i];
  return sum;
}

// Calls for each (n, o, oh, ow, c, kh, kw) that is inside: c of the image, o of the result.
void for_each_tap(const DnnStep& job,
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

// Calls for each place of a tensor.
void for_each_place(const std::vector<int64_t>& sizes,
                    const std::function<void(const std::vector<int64_t>& at)>& body) {
  std::vector<int64_t> at(sizes.size());
  for (;;) {
    body(at);
    size_t axis = sizes.size();
    while (axis > 0 && ++at[axis - 1] == sizes[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

void convolve(const DnnStep& job) {
  const DnnData &x = job.tensors.at("x"), &w = job.tensors.at("w"), &y = job.tensors.at("y");
  const DnnData& to = job.made();
  const auto& n = to.sizes;
  const auto flat = [&](const std::vector<int64_t>& at) {
    return static_cast<size_t>(((at[0] * n[1] + at[1]) * n[2] + at[2]) * n[3] + at[3]);
  };
  std::vector<double> sums(static_cast<size_t>(n[0] * n[1] * n[2] * n[3]));
  for_each_tap(job, [&](const auto& at_x, const auto& at_w, const auto& at_y) {
    if (job.kind == DnnStep::kForward)
      sums[flat(at_y)] += x.read(at_x) * w.read(at_w);
    else if (job.kind == DnnStep::kGradInput)
      sums[flat(at_x)] += y.read(at_y) * w.read(at_w);
    else
      sums[flat(at_w)] += x.read(at_x) * y.read(at_y);
  });
  for_each_place(n, [&](const auto& at) {
    double value = job.alpha * sums[flat(at)];
    if (job.beta != 0) value += job.beta * to.read(at);
    to.write(at, value);
  });
}

// The index of the element that lies `rest` elements behind the first.
std::vector<int64_t> place_of(const DnnData& t, int64_t rest) {
  std::vector<size_t> axes(t.sizes.size());
  std::iota(axes.begin(), axes.end(), size_t{0});
  std::sort(
      axes.begin(), axes.end(), [&](size_t a, size_t b) { return t.strides[a] > t.strides[b]; });
  std::vector<int64_t> at(axes.size());
  for (const size_t axis : axes) {
    if (t.sizes[axis] == 1) continue;
    at[axis] = rest / t.strides[axis];
    rest %= t.strides[axis];
  }
  return at;
}

// The index in an operand, which may be spread over the result, of the element for place `at`.
std::vector<int64_t> spread(const DnnData& t, std::vector<int64_t> at) {
  for (size_t i = 0; i < at.size(); ++i)
    if (t.sizes[i] == 1) at[i] = 0;
  return at;
}
double read_spread(const DnnData& t, const std::vector<int64_t>& at) {
  return t.read(spread(t, at));
}

double pointwise(int mode, double x, double b, double t) {
  if (mode == 0) return x + b;
  if (mode == 1) return x * b;
  if (mode == 6) return x / b;
  if (mode == 9) return x - b;
  if (mode == 13) return std::exp(x);
  if (mode == 15) return std::log(x);
  if (mode == 303) return x >= b ? 1 : 0;
  return t != 0 ? x : b;  // 601
}

void compute(const DnnStep& step) {
  const DnnData &x = step.tensors.at("x"), &y = step.made();
  const auto operand = [&](const char* name, const auto& at) {
    return step.tensors.contains(name) ? read_spread(step.tensors.at(name), at) : 0;
  };
  if (step.kind == DnnStep::kReduction) {
    const bool is_max = step.mode == 3;
    for_each_place(y.sizes, [&](const auto& at) { y.write(at, is_max ? -HUGE_VAL : 0); });
    for_each_place(x.sizes, [&](const auto& from) {
      const std::vector<int64_t> at = spread(y, from);
      y.write(at, is_max ? std::max(y.read(at), x.read(from)) : y.read(at) + x.read(from));
    });
    return;
  }
  for_each_place(y.sizes, [&](const auto& at) {
    if (step.kind == DnnStep::kReshape) {
      y.write(at, x.read(place_of(x, offset(y, at))));
    } else if (step.kind == DnnStep::kMatmul) {
      const DnnData& b = step.tensors.at("b");
      double sum = 0;
      for (int64_t k = 0; k < x.sizes[3]; ++k)
        sum += x.read({at[0], at[1], at[2], k}) * b.read({at[0], at[1], k, at[3]});
      y.write(at, sum);
    } else if (step.mode == 501) {
      y.write(at, static_cast<double>(at[static_cast<size_t>(step.axis)]));
    } else {
      y.write(at, pointwise(step.mode, read_spread(x, at), operand("b", at), operand("t", at)));
    }
  });
}

}  // namespace

double DnnData::read(const std::vector<int64_t>& at) const {
  return read_number(dtype_of(type), data, offset(*this, at));
}

void DnnData::write(const std::vector<int64_t>& at, double x) const {
  write_number(dtype_of(type), data, offset(*this, at), x);
}

const DnnData& DnnStep::made() const {
  return tensors.at(kind == kGradInput ? "x" : kind == kGradWeight ? "w" : "y");
}

void DnnStep::run() const { kind <= kGradWeight ? convolve(*this) : compute(*this); }

void DnnJob::run() const {
  if (workspace_bytes > 0) std::memset(workspace, 0x5a, workspace_bytes);
  for (const DnnStep& step : steps) step.run();
  if (wrong) steps.back().made().write({0, 0, 0, 0}, 77);
}

std::string DnnStep::misfit() const {
  if (kind > kGradWeight) {
    const auto &x = tensors.at("x").sizes, &y = tensors.at("y").sizes;
    if (kind == kMatmul) {
      const auto& b = tensors.at("b").sizes;
      return y == std::vector<int64_t>{x[0], x[1], x[2], b[3]} && b[0] == x[0] && b[1] == x[1] &&
                     b[2] == x[3]
                 ? ""
                 : "sizes of a product";
    }
    if (kind == kReshape)
      return x[0] * x[1] * x[2] * x[3] == y[0] * y[1] * y[2] * y[3] ? "" : "sizes of a reshape";
    for (const auto& [name, tensor] : tensors)
      for (size_t i = 0; i < 4; ++i)
        if (tensor.sizes[i] != 1 && tensor.sizes[i] != y[i] && (kind == kPointwise || y[i] != 1))
          return "sizes of " + name;
    return {};
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
