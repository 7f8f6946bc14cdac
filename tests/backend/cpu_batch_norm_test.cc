// Batch norm and its gradient on the CPU against the reference backend and against differences, and
// the same bits for any number of threads and any instruction set.
#include <gtest/gtest.h>

#include "ridge/backend/ref/ref_backend.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "tests/backend/cpu_runs.h"
#include "tests/support/gradient_check.h"

namespace ridge::test {
namespace {

constexpr NormActivation kActivations[] = {
    NormActivation::kNone, NormActivation::kRelu, NormActivation::kRelu6};
const std::vector<Shape> kShapes = {
    {7, 3}, {64, 5}, {65, 16}, {3, 4, 17}, {200, 70}, {1300, 33}, {130, 600}, {5, 1100}};

// y, mean and variance; then dx, dgamma and dbeta of the same x.
void build(CaseBuilder& b, const Shape& shape, NormActivation activation) {
  const Shape channel{shape.back()};
  const Value x = b.input(shape, -1.0, 3.0), gamma = b.input(channel, 1.0, 4.0),
              beta = b.input(channel, 1.0, 4.0), dy = b.input(shape);
  const BatchNormResult r = batch_norm(x, gamma, beta, 1e-3, activation);
  BatchNormGrad op;
  op.eps = 1e-3;
  op.activation = r.y.node->op_as<BatchNorm>().activation;
  const Value dx = add_node(std::move(op), {x, gamma, beta, r.mean, r.variance, dy});
  b.finish({r.y, r.mean, r.variance, dx, {dx.node, 1}, {dx.node, 2}});
}

TEST(CpuBatchNorm, IsTheReferenceInEveryWay) {
  const auto reference = make_ref_backend();
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    for (NormActivation activation : kActivations)
      for (const Shape& shape : kShapes) {
        SCOPED_TRACE(fmt::format(
            "{} {} {}", name_of(dtype), to_string(shape), static_cast<int>(activation)));
        CaseBuilder b(dtype, 5);
        build(b, shape, activation);
        const NamedTensors got = run_every_way(b);
        // 16-bit results are a kink's width away from the reference's where a rounded mean moves
        // an element over it; node by node the registry walk compares them.
        if (size_of(dtype) == 2) continue;
        const NamedTensors want = evaluate(b.graph(), *reference, b.tensors());
        for (const auto& [name, tensor] : want)
          EXPECT_EQ(difference(got.at(name), tensor, dtype == DType::kF64 ? 1e-11 : 2e-4), "")
              << name;
      }
}

// Images of 16 bits, whose parameters and statistics are f32: results are rounded once, and the
// plain ops that it stands for say the same.
TEST(CpuBatchNorm, ImagesOf16BitsHaveWideStatistics) {
  const auto reference = make_ref_backend();
  for (DType dtype : {DType::kF16, DType::kBF16})
    for (NormActivation activation : kActivations)
      for (const Shape& shape : kShapes) {
        SCOPED_TRACE(fmt::format(
            "{} {} {}", name_of(dtype), to_string(shape), static_cast<int>(activation)));
        CaseBuilder b(DType::kF32, 5);
        const Shape channel{shape.back()};
        // The mean is far from zero, where one of 16 bits would be off by many deviations.
        const Value x = cast(b.input(shape, 30.0, 34.0), dtype), gamma = b.input(channel, 1.0, 4.0),
                    beta = b.input(channel, 1.0, 4.0), dy = cast(b.input(shape), dtype);
        const BatchNormResult r = batch_norm(x, gamma, beta, 1e-3, activation);
        BatchNormGrad op;
        op.eps = 1e-3;
        op.activation = r.y.node->op_as<BatchNorm>().activation;
        const std::vector<Value> inputs{x, gamma, beta, r.mean, r.variance, dy};
        const Value dx = add_node(op, inputs);
        const std::vector<Value> plain = r.y.node->op->expand(std::vector{x, gamma, beta}),
                                 plain_gradients = op.expand(inputs);
        b.finish({r.y,
                  r.mean,
                  r.variance,
                  dx,
                  {dx.node, 1},
                  {dx.node, 2},
                  plain[0],
                  plain[1],
                  plain[2],
                  plain_gradients[0],
                  plain_gradients[1],
                  plain_gradients[2]});
        EXPECT_EQ(r.mean.dtype(), DType::kF32);
        EXPECT_EQ(dx.dtype(), dtype);
        const NamedTensors got = run_every_way(b);
        const NamedTensors want = evaluate(b.graph(), *reference, b.tensors());
        const double rounding = dtype == DType::kF16 ? 0x1p-9 : 0x1p-6;
        for (const auto& [name, tensor] : want)
          EXPECT_EQ(
              difference(got.at(name), tensor, size_of(tensor.type().dtype) == 2 ? rounding : 1e-3),
              "")
              << name;
      }
}

// The gradient by autodiff, the statistics' own gradients included, against finite differences.
TEST(CpuBatchNorm, GradientsAreDifferences) {
  const auto reference = make_ref_backend(), cpu = make_cpu_backend();
  CaseBuilder b(DType::kF64, 6);
  const BatchNormResult r = batch_norm(b.input({4, 3, 5}), b.input({5}), b.input({5}), 1e-3);
  b.finish({r.y * r.y, r.mean, reduce_sum(r.variance * r.variance)});
  EXPECT_EQ(check_gradients(b.graph(), b.tensors(), *cpu, *reference, 3).problem, "");
}

}  // namespace
}  // namespace ridge::test
