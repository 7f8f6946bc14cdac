// Lone nodes whose printed kernels are run on the CPU, with the grid of their launch and with one
// block.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/support/case_builder.h"

namespace ridge::test {

/// Nodes alone with their numbers; their kernels are compiled together.
class Contractions {
 public:
  using Print = cuda::Printing (*)(const Node&);

  /// `built` is finished; its last node is the one.
  void add(CaseBuilder built, Print print_node = cuda::print_kernel) {
    const Node& node = *built.graph().outputs()[0].value.node;
    cuda::Printing printing = print_node(node);
    ASSERT_TRUE(printing.kernel) << printing.refusal;
    host_.add(*printing.kernel);
    cases_.push_back({std::move(built), std::move(*printing.kernel)});
  }

  /// With the grid of the launch, and with one block.
  void expect_bits_of_cpu() {
    const auto cpu = make_backend("cpu");
    for_each([&](const Case& each) {
      ASSERT_TRUE(each.kernel.same_bits);
      const NamedTensors wanted = evaluate(each.graph(), *cpu, each.built.tensors(), choose_packed);
      expect_everywhere(
          each, [&](const NamedTensors& got) { EXPECT_EQ(bit_difference(got, wanted), ""); });
    });
  }
  void expect_near_reference() {
    const auto reference = make_backend("ref");
    for_each([&](const Case& each) {
      ASSERT_FALSE(each.kernel.same_bits);
      const NamedTensors wanted = evaluate(each.graph(), *reference, each.built.tensors());
      expect_everywhere(each, [&](const NamedTensors& got) {
        for (const auto& [name, tensor] : wanted)
          EXPECT_EQ(
              difference(
                  got.at(name), tensor, tolerance(tensor.type().dtype, OpClass::kContraction)),
              "")
              << name;
      });
    });
  }
  /// check(case, results) for each, of which the bits are other than the CPU's.
  template <class Check>
  void expect(Check check) {
    for_each([&](const Case& each) {
      ASSERT_FALSE(each.kernel.same_bits);
      expect_everywhere(each, [&](const NamedTensors& got) { check(each.built, got); });
    });
  }
  const cuda::PrintedKernel& kernel(size_t i) const { return cases_[i].kernel; }
  size_t size() const { return cases_.size(); }
  size_t bank_conflicts() const { return host_.bank_conflicts(); }

 private:
  struct Case {
    mutable CaseBuilder built;  // finished: it is only read
    cuda::PrintedKernel kernel;

    const Graph& graph() const { return built.graph(); }
  };

  template <class Check>
  void for_each(Check check) {
    host_.build();
    for (const Case& each : cases_) {
      SCOPED_TRACE(print(each.graph()) + each.kernel.source);
      check(each);
      if (testing::Test::HasFailure()) return;
    }
  }

  template <class Check>
  void expect_everywhere(const Case& each, Check check) {
    const NamedTensors first = run(each, false);
    check(first);
    EXPECT_EQ(bit_difference(run(each, true), first), "") << "another grid, other bits";
  }

  // Bytes of NaN on both sides of an operand; none where AddressSanitizer, linked or preloaded, has
  // its own.
  static size_t poison() { return ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ? 0 : 64; }
  static Tensor poisoned(const Tensor& operand) {
    Tensor made({DType::kU8, {static_cast<int64_t>(operand.bytes() + 2 * poison())}});
    std::memset(made.data(), 0xff, made.bytes());
    std::memcpy(static_cast<std::byte*>(made.data()) + poison(), operand.data(), operand.bytes());
    return made;
  }

  NamedTensors run(const Case& each, bool one_block) const {
    constexpr size_t kGuard = 64;
    const Node& node = *each.graph().outputs()[0].value.node;
    std::vector<const void*> inputs;
    std::vector<Tensor> memory, surrounded;
    for (const Value& value : node.inputs) {
      const Tensor& own = each.built.tensors().at(value.node->op_as<Input>().input_name);
      surrounded.push_back(poisoned(own));
      inputs.push_back(static_cast<const std::byte*>(surrounded.back().data()) + poison());
    }
    std::vector<void*> outputs;
    for (const TensorType& type : node.outputs) {
      memory.emplace_back(TensorType{DType::kU8, {type.bytes() + static_cast<int64_t>(kGuard)}});
      std::memset(memory.back().data(), 0x5a, memory.back().bytes());
      outputs.push_back(memory.back().data());
    }
    host_.run(each.kernel, inputs, outputs, one_block);
    NamedTensors results;
    for (const Output& output : each.graph().outputs()) {
      const auto index = static_cast<size_t>(output.value.index);
      Tensor result(output.value.type());
      std::memcpy(result.data(), outputs[index], result.bytes());
      results.emplace(output.name, std::move(result));
      const auto bytes = memory[index].span<uint8_t>();
      for (size_t i = bytes.size() - kGuard; i < bytes.size(); ++i)
        EXPECT_EQ(bytes[i], 0x5a) << "written behind a result";
    }
    return results;
  }

  PrintedOnHost host_;
  std::vector<Case> cases_;
};

}  // namespace ridge::test
