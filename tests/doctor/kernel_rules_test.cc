// Rules about kernels, copies and code: each on a trace that has its trouble, and on one that only
// looks so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "ridge/doctor/replay/replay.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/rules.h"
#include "tests/doctor/made_trace.h"

namespace ridge::doctor {
namespace {

using Apply = void (*)(const Trace&, const Analysis&, RuleOutput&);

// Eight steps of 1000 us, back to back kernels that were launched long before.
class Steps1000 {
 public:
  void step(const std::function<void(Steps1000&)>& fill) {
    at_ = 1000.0 * steps_++;
    made_.range(fmt::format("ProfilerStep#{}", steps_), {at_, 1000});
    call_ = at_;
    fill(*this);
  }
  void kernel(std::string_view name, double length, int32_t blocks = 1000) {
    const size_t row = made_.kernel(name, call_, {at_ + 6, length});
    made_.builder().set(row, Launch{.grid = {blocks, 1, 1}, .block = {128, 1, 1}});
    call_ += 5;
    at_ += length;
  }
  double now() const { return at_; }
  double call_us() const { return call_; }
  MadeTrace& made() { return made_; }

 private:
  MadeTrace made_;
  int steps_ = 0;
  double at_ = 0, call_ = 0;
};

Trace eight_steps(const std::function<void(Steps1000&)>& fill) {
  Steps1000 steps;
  for (int step = 0; step < 8; ++step) steps.step(fill);
  steps.made().trace().devices = {
      {.number = 0, .name = "GPU", .multiprocessors = 100, .major = 9, .minor = 0}};
  return steps.made().done();
}

RuleOutput apply(Apply rule, const Trace& trace) {
  RuleOutput output;
  const Analysis analysis = analyse_and_replay(trace);
  EXPECT_EQ(analysis.steps.source, "ProfilerStep");
  rule(trace, analysis, output);
  return output;
}

// Fires, with this cost in microseconds a step.
Finding expect_finding(Apply rule, const Trace& trace, double cost_us) {
  RuleOutput output = apply(rule, trace);
  EXPECT_TRUE(output.not_fired.empty());
  if (output.findings.size() != 1) {
    ADD_FAILURE() << "findings: " << output.findings.size();
    return {.rule = ""};
  }
  Finding finding = output.findings[0];
  EXPECT_NEAR(finding.cost_ms * 1000, cost_us, 0.02 * cost_us);
  EXPECT_FALSE(finding.evidence.empty());
  EXPECT_FALSE(finding.evidence.front().rows.empty());
  EXPECT_FALSE(finding.fix.empty());
  EXPECT_GT(total_length(finding.at), 0);
  return finding;
}

std::string expect_none(Apply rule, const Trace& trace) {
  const RuleOutput output = apply(rule, trace);
  EXPECT_TRUE(output.findings.empty());
  if (output.not_fired.size() != 1) {
    ADD_FAILURE() << "no reason";
    return "";
  }
  return output.not_fired[0].reason;
}

constexpr const char* kGemm = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64";
constexpr const char* kAdd = "void at::native::vectorized_elementwise_kernel<4, AddFunctor>(int)";
constexpr const char* kMul = "void at::native::vectorized_elementwise_kernel<4, MulFunctor>(int)";

// Names of a trace of PyTorch on an H200.
TEST(ShortNames, AreWithoutArgumentsAndUnnamedNamespaces) {
  EXPECT_EQ(
      short_name("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, "
                 "float, false>(int, float, float const*)"),
      "at::native::vectorized_layer_norm_kernel");
  EXPECT_EQ(short_name("void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, "
                       "true, false>(float*, float const*)"),
            "softmax_warp_forward");
  EXPECT_EQ(short_name("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)"),
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80");
  EXPECT_EQ(short_name("(anonymous namespace)::(anonymous namespace)::f(int)"), "f");
  EXPECT_EQ(short_name(""), "");
}

TEST(R04, ChainsOfElementwiseKernels) {
  const Finding finding = expect_finding(r04_fusable_chains,
                                         eight_steps([](Steps1000& step) {
                                           step.kernel(kGemm, 300);
                                           for (const char* name : {kAdd, kMul, kAdd, kMul})
                                             step.kernel(name, 25);
                                           step.kernel(kGemm, 300);
                                           for (const char* name : {kAdd, kMul, kAdd})
                                             step.kernel(name, 20);
                                         }),
                                         75 + 40);  // All of both chains but a kernel of each.
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_NE(finding.evidence[0].text.find("2 chains of 3.5 kernels"), std::string::npos)
      << finding.evidence[0].text;
}

// One epilogue after each product, reductions, and an optimizer, which is another rule's.
TEST(R04, EpiloguesAndUpdatesAreNone) {
  expect_none(r04_fusable_chains, eight_steps([](Steps1000& step) {
                for (int i = 0; i < 4; ++i) {
                  step.kernel(kGemm, 100);
                  step.kernel(kAdd, 50);
                  step.kernel(kMul, 20);
                  step.kernel("void at::native::reduce_kernel<512, 1>", 20);
                }
                const double call = step.call_us();
                for (int i = 0; i < 8; ++i) step.kernel(kAdd, 20);
                step.made().range("Optimizer.step#SGD.step", {call, step.call_us() - call});
              }));
}

void add_copy(Steps1000& step, int64_t bytes, MemoryKind from, double length) {
  const int64_t call = step.made().call("cudaMemcpyAsync", {step.now() + 10, length + 10});
  const size_t row = step.made().device(EventKind::kCopy, "HtoD", {step.now() + 15, length}, call);
  step.made().builder().set(row, Transfer{.bytes = bytes, .from = from, .to = MemoryKind::kDevice});
}

TEST(R06, APageableCopyThatHoldsTheDeviceUp) {
  const Finding finding = expect_finding(r06_pageable_copies,
                                         eight_steps([](Steps1000& step) {
                                           step.kernel(kGemm, 500);
                                           add_copy(step, 8 << 20, MemoryKind::kPageable, 290);
                                         }),
                                         300);
  EXPECT_EQ(finding.severity, Severity::kHigh);
  EXPECT_EQ(finding.semantic_class, SemanticClass::kBitIdentical);
}

TEST(R06, PinnedManagedAndTinyCopiesAreFine) {
  for (const auto& [bytes, from] : {std::pair{int64_t{8} << 20, MemoryKind::kPinned},
                                    std::pair{int64_t{8} << 20, MemoryKind::kManaged},
                                    std::pair{int64_t{32} << 10, MemoryKind::kPageable}})
    expect_none(r06_pageable_copies, eight_steps([&, kind = from, size = bytes](Steps1000& step) {
                  step.kernel(kGemm, 500);
                  add_copy(step, size, kind, 290);
                }));
}

TEST(R11, CodeThatIsLoadedInSteadySteps) {
  const Finding finding =
      expect_finding(r11_late_modules,
                     eight_steps([](Steps1000& step) {
                       step.kernel(kGemm, 500);
                       step.made().call("cuModuleLoadData", {step.now() + 100, 250});
                       step.made().op("aten::mm", {step.now() + 50, 400});
                     }),
                     250);
  EXPECT_EQ(finding.severity, Severity::kHigh);
  EXPECT_NE(finding.evidence[0].text.find("in 8 of 8 steps"), std::string::npos)
      << finding.evidence[0].text;
}

TEST(R11, LoadsOfTheFirstStepAreExpected) {
  int step_number = 0;
  expect_none(r11_late_modules, eight_steps([&](Steps1000& step) {
                step.kernel(kGemm, 500);
                if (step_number++ == 0)
                  step.made().call("cuModuleLoadData", {step.now() + 100, 250});
              }));
}

TEST(R11, WhatIsLoadedWhileTheDeviceWorksIsFree) {
  expect_none(r11_late_modules, eight_steps([](Steps1000& step) {
                step.kernel(kGemm, 900);
                step.made().call("cuModuleLoadData", {step.now() - 700, 250});
              }));
}

TEST(R13, ProductsInPlainFp32) {
  const Finding finding = expect_finding(r13_tensor_cores,
                                         eight_steps([](Steps1000& step) {
                                           step.kernel("ampere_sgemm_128x64_tn", 600);
                                           step.kernel(kAdd, 300);
                                         }),
                                         600 * 7.0 / 8);
  EXPECT_EQ(finding.severity, Severity::kHigh);
  EXPECT_EQ(finding.semantic_class, SemanticClass::kPrecision);
  EXPECT_LE(finding.predicted.high, finding.ceiling);
}

// The makers' rates in BF16 or FP16 over those in FP32: 989 over 67, and 165 over 82.
TEST(R13, WhatComesBackIsTheDevicesToSay) {
  Trace trace = eight_steps([](Steps1000& step) { step.kernel("ampere_sgemm_128x64_tn", 600); });
  for (const auto& [name, share] : {std::pair("NVIDIA H200", 1 - 67.0 / 989),
                                    std::pair("NVIDIA GeForce RTX 4090", 83.0 / 165)}) {
    trace.devices[0].name = name;
    expect_finding(r13_tensor_cores, trace, 600 * share);
  }
}

TEST(R13, MatrixUnitsUnderManyNames) {
  for (const char* name :
       {kGemm,
        "nvjet_tst_128x128_64x4_2x1_v_bz_NNT",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>",
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn",
        "volta_dgemm_64x64_nt",
        "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN_LDSB0"})
    expect_none(r13_tensor_cores, eight_steps([name](Steps1000& step) { step.kernel(name, 900); }));
}

TEST(R13, ADeviceWithoutMatrixUnits) {
  Trace trace = eight_steps([](Steps1000& step) { step.kernel("maxwell_sgemm_128x64_nt", 900); });
  trace.devices[0].major = 6;
  EXPECT_EQ(expect_none(r13_tensor_cores, trace), "the device has no matrix units");
}

// TF32 and bf16 came with compute capability 8.
TEST(R13, TheFixIsOneThatTheDeviceTakes) {
  Trace trace = eight_steps([](Steps1000& step) { step.kernel("volta_sgemm_128x64_nt", 900); });
  for (const auto& [major, word] :
       {std::pair(7, "FP16"), std::pair(8, "TF32"), std::pair(0, "TF32")}) {
    trace.devices[0].major = major;
    RuleOutput output;
    r13_tensor_cores(trace, analyse(trace), output);
    ASSERT_EQ(output.findings.size(), 1u);
    EXPECT_NE(output.findings[0].fix.find(word), std::string::npos) << major;
    EXPECT_EQ(output.findings[0].fix.find("TF32") == std::string::npos, major == 7);
  }
}

TEST(R16, TransposesAndCasts) {
  expect_finding(r16_layout_copies,
                 eight_steps([](Steps1000& step) {
                   step.kernel(kGemm, 500);
                   step.kernel("void cudnn::ops::nchwToNhwcKernel<float, float>(int)", 60);
                   step.kernel("void at::native::bfloat16_copy_kernel_cuda(TensorIterator&)", 40);
                   step.kernel("void transpose_readWrite_alignment_kernel<float>", 50);
                 }),
                 150);
}

TEST(R16, ShortOnesAreBoundByLatency) {
  expect_none(r16_layout_copies, eight_steps([](Steps1000& step) {
                step.kernel(kGemm, 500);
                for (int i = 0; i < 20; ++i)
                  step.kernel("void cudnn::ops::nchwToNhwcKernel<float, float>(int)", 8);
              }));
}

TEST(R17, EightBlocksOnAHundredMultiprocessors) {
  const Finding finding = expect_finding(r17_few_blocks,
                                         eight_steps([](Steps1000& step) {
                                           step.kernel(kGemm, 500);
                                           step.kernel("scan_kernel", 200, 8);
                                         }),
                                         200 * 0.92);
  EXPECT_EQ(finding.severity, Severity::kWarning);
}

// A persistent kernel has one block on each; collectives and short kernels are small by nature.
TEST(R17, PersistentShortAndCommunicating) {
  expect_none(r17_few_blocks, eight_steps([](Steps1000& step) {
                step.kernel("persistent_gemm", 500, 100);
                step.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200, 24);
                for (int i = 0; i < 20; ++i) step.kernel(kAdd, 9, 4);
              }));
}

TEST(R17, WithoutTheDeviceNobodyKnows) {
  Trace trace = eight_steps([](Steps1000& step) { step.kernel("scan_kernel", 900, 8); });
  trace.devices.clear();
  EXPECT_NE(expect_none(r17_few_blocks, trace).find("does not say"), std::string::npos);
}

// 30 tensors, each with four operations of 5 us: one pass of 28 bytes a parameter takes 28 of the
// 48 that four passes of 12 take.
TEST(R21, FourKernelsForEachTensor) {
  const Finding finding = expect_finding(
      r21_unfused_optimizer,
      eight_steps([](Steps1000& step) {
        step.kernel(kGemm, 350);
        const double call = step.call_us();
        for (int tensor = 0; tensor < 30; ++tensor)
          for (const char* name :
               {"aten::mul_", "aten::add_", "aten::addcmul_", "aten::addcdiv_"}) {
            step.made().op(name, {step.call_us(), 5});
            step.kernel(kMul, 5);
          }
        step.made().range("Optimizer.step#AdamW.step", {call, step.call_us() - call});
      }),
      600 * (1 - 28.0 / 48));
  EXPECT_EQ(finding.severity, Severity::kHigh);
}

TEST(R21, OneKernelForManyTensors) {
  EXPECT_EQ(expect_none(r21_unfused_optimizer, eight_steps([](Steps1000& step) {
                          step.kernel(kGemm, 350);
                          const double call = step.call_us();
                          for (int i = 0; i < 24; ++i)
                            step.kernel("void at::native::multi_tensor_apply_kernel<Adam>", 20);
                          step.made().range("Optimizer.step#AdamW.step",
                                            {call, step.call_us() - call});
                        })),
            "the optimizer updates many tensors with a kernel");
}

}  // namespace
}  // namespace ridge::doctor
