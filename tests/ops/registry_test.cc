// The registry walk, and proof that it fails when a part is missing.
#include "ridge/graph/ops/registry.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "ridge/backend/host.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/run/backends.h"
#include "tests/support/op_audit.h"

namespace ridge::test {
namespace {

class RegistryWalk : public ::testing::TestWithParam<std::string> {};

// On a machine with a GPU, RIDGE_TEST_DEVICE=cuda walks its kernels. One backend serves all ops: to
// open a GPU takes longer than most of them.
Backend& tested_backend() {
  static const char* const named = std::getenv("RIDGE_TEST_DEVICE");
  static const auto backend = make_backend(named != nullptr && *named != '\0' ? named : "cpu");
  return *backend;
}

TEST_P(RegistryWalk, OpIsComplete) {
  const auto ref = make_backend("ref");
  for (const std::string& problem :
       audit_op(registry(), GetParam(), all_samples(), tested_backend(), *ref))
    ADD_FAILURE() << problem;
}

INSTANTIATE_TEST_SUITE_P(AllOps,
                         RegistryWalk,
                         ::testing::ValuesIn(registry().names()),
                         [](const auto& op) { return op.param; });

// ---- an op without one of its parts ----

// Doubles its input: complete but for what each test takes away, and for its name, which the
// registry of the library does not know.
template <Gradient kGradient, int kFactor = 2>
class Strange final : public Elementwise<Strange<kGradient, kFactor>> {
 public:
  static constexpr OpTraits kTraits =
      unary_traits("strange", dtype_set(DType::kF64), OpClass::kArithmetic, kGradient);
  std::vector<Value> vjp(const VjpContext& c) const override {
    return {c.dout() * static_cast<double>(kFactor)};
  }
};

void double_three(const KernelArgs& args) {
  for (int i = 0; i < 3; ++i)
    static_cast<double*>(args.outputs[0])[i] = 2 * static_cast<const double*>(args.inputs[0])[i];
}

// The device knows what the gradient check needs besides: the reference's kernels.
KernelTable::Make reference_kernel(Backend& ref) {
  return [&ref](const Node& node) {
    std::shared_ptr<NodeKernel> kernel = ref.instantiate(node, 0);
    return std::make_unique<HostKernel>([kernel](const KernelArgs& args) {
      kernel->launch(*make_host_stream(StreamMode::kInline), args);
    });
  };
}

template <Gradient kGradient, int kFactor = 2>
std::vector<std::string> audit_strange(bool with_sample, bool with_kernel) {
  using Op = Strange<kGradient, kFactor>;
  OpRegistry registry;
  registry.add<Op>();
  std::vector<OpSample> samples;
  if (with_sample)
    samples.push_back({"strange", "sample", [](CaseBuilder& b) -> std::vector<Value> {
                         return {add_node(Op{}, {b.input({3})})};
                       }});
  const auto ref = make_backend("ref");
  KernelTable table;
  for (const char* op : {"mul", "reduce_sum", "constant", "broadcast", "reshape"})
    table.add(op, {"reference", 0}, reference_kernel(*ref));
  if (with_kernel)
    table.add("strange", {"reference", 0}, [](const Node&) {
      return std::make_unique<HostKernel>(double_three);
    });
  class Device final : public HostBackend {
   public:
    explicit Device(KernelTable t) : HostBackend("device", std::move(t), StreamMode::kInline) {}
    Calibration calibrate() override { return {}; }
  } device(std::move(table));
  return audit_op(registry, "strange", samples, device, device);
}

bool mentions(const std::vector<std::string>& problems, std::string_view text) {
  for (const std::string& problem : problems)
    if (problem.find("'strange'") != problem.npos && problem.find(text) != problem.npos)
      return true;
  return false;
}

TEST(RegistryWalk, NamesAnOpWithoutDeclaredGradient) {
  EXPECT_TRUE(mentions(audit_strange<Gradient::kUndeclared>(true, true), "declares neither"));
  EXPECT_FALSE(mentions(audit_strange<Gradient::kZero>(true, true), "declares neither"));
}

TEST(RegistryWalk, NamesAnOpWithoutSample) {
  EXPECT_TRUE(mentions(audit_strange<Gradient::kRule>(false, true), "no sample"));
  EXPECT_FALSE(mentions(audit_strange<Gradient::kRule>(true, true), "has no sample"));
}

TEST(RegistryWalk, NamesAnOpWithoutKernel) {
  EXPECT_TRUE(mentions(audit_strange<Gradient::kRule>(true, false), "no kernel"));
  EXPECT_FALSE(mentions(audit_strange<Gradient::kRule>(true, true), "no kernel"));
}

TEST(RegistryWalk, NamesAnOpWithAWrongGradient) {
  EXPECT_TRUE(mentions(audit_strange<Gradient::kRule, 3>(true, true), "autodiff"));
  EXPECT_FALSE(mentions(audit_strange<Gradient::kRule, 2>(true, true), "autodiff"));
}

TEST(RegistryWalk, NamesAnOpThatIsNotRegistered) {
  const auto ref = make_backend("ref");
  EXPECT_TRUE(mentions(audit_op(OpRegistry(), "strange", {}, *ref, *ref), "unknown op"));
}

// An op must be in the registry to be printed: its text would not parse back.
TEST(RegistryWalk, NamesAnOpWithoutSerializedName) {
  EXPECT_TRUE(mentions(audit_strange<Gradient::kRule>(true, true), "unknown op 'strange'"));
}

}  // namespace
}  // namespace ridge::test
