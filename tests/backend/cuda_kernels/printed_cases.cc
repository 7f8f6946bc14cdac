#include "tests/backend/cuda_kernels/printed_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>

#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"

namespace ridge::test {

using cuda::print_kernel;
using cuda::PrintedKernel;

std::string name_of_number(size_t i) { return fmt::format("{}", i); }

double any_number(std::mt19937_64& random, bool special) {
  static constexpr double kSpecial[] = {
      0.0,          -0.0,          1.0,    -1.0,    INFINITY, -INFINITY, NAN,    1e-45,
      -1e-45,       1e-40,         -3e-39, 1.2e-38, 3.4e38,   -3.4e38,   1e300,  -1e-310,
      2147483648.0, -2147483648.0, 88.5,   -103.5,  65520.0,  6e-8,      40000., -70.25};
  std::uniform_real_distribution<double> unit(-1, 1);
  const auto kind = random() % 8;
  if (special && kind == 0) return kSpecial[random() % std::size(kSpecial)];
  if (special && kind == 1) return std::ldexp(unit(random), static_cast<int>(random() % 300) - 150);
  if (kind == 2) return static_cast<double>(random() % 21) - 10;
  return 6 * unit(random);
}

namespace {

const Node& node_of(const Graph& graph) { return *graph.nodes().back(); }

void fill(Tensor& tensor, std::mt19937_64& random, Fill how) {
  const bool special = how == Fill::kSpecial;
  dispatch(tensor.type().dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (T& each : tensor.span<T>()) {
      each = convert<T>(how == Fill::kZeros ? (random() % 2 == 0 ? 0.0 : -0.0)
                                            : any_number(random, special));
      if constexpr (std::is_same_v<T, int64_t>)
        if (special && random() % 4 == 0) each = static_cast<T>(random() * uint64_t{0x100000001});
    }
  });
}

// The first element that differs, as text; NaN equals NaN.
std::string first_difference(const Tensor& got, const Tensor& wanted) {
  return dispatch(wanted.type().dtype, [&](auto tag) -> std::string {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < wanted.elements(); ++i) {
      const T &x = got.span<T>()[static_cast<size_t>(i)],
              &y = wanted.span<T>()[static_cast<size_t>(i)];
      if (std::memcmp(&x, &y, sizeof x) == 0) continue;
      if (std::isnan(got.at(i)) && std::isnan(wanted.at(i))) continue;
      return fmt::format("element {} is {:a}, not {:a}", i, got.at(i), wanted.at(i));
    }
    return "";
  });
}

// What rounding to nearest takes at most off a number of so much.
double rounding_of(DType dtype, double magnitude) {
  switch (dtype) {
    case DType::kF64:
      return magnitude * 0x1p-53;
    case DType::kF32:
      return magnitude * 0x1p-24;
    case DType::kBF16:
      return magnitude * 0x1p-8;
    default:
      return std::max(magnitude * 0x1p-11, 0x1p-25);  // f16: subnormal numbers are near
  }
}

// Of sums of products: each of n terms goes through at most n + 1 roundings, so that the error is
// at most n + 2 roundings of the sum of their magnitudes (with what is of second order), and one of
// the result. How many terms there are, the node on ones says.
std::string beyond_rounding(const Graph& lone,
                            const NamedTensors& operands,
                            const NamedTensors& got,
                            const NamedTensors& wanted,
                            Backend& reference) {
  NamedTensors magnitudes = operands, ones = operands;
  for (auto& [name, tensor] : magnitudes)
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      tensor.set(i, std::fabs(tensor.at(i)));
      ones.at(name).set(i, 1.0);
    }
  const NamedTensors sizes = evaluate(lone, reference, magnitudes);
  const NamedTensors terms = evaluate(lone, reference, ones);
  for (const auto& [name, want] : wanted) {
    const DType dtype = want.type().dtype;
    const DType sums = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    for (int64_t i = 0; i < want.elements(); ++i) {
      // Of 16 bits, the numbers of terms and magnitudes are rounded too.
      const double n = terms.at(name).at(i) * 1.01, size = sizes.at(name).at(i) * 1.01;
      const double allowed =
          (n + 2) * rounding_of(sums, size) + 2 * rounding_of(dtype, std::fabs(want.at(i)));
      const double error = std::fabs(got.at(name).at(i) - want.at(i));
      if (!(error <= allowed))
        return fmt::format("element {} is {}, not {}: off by {}, allowed {} for {} terms",
                           i,
                           got.at(name).at(i),
                           want.at(i),
                           error,
                           allowed,
                           n);
    }
  }
  return {};
}

// Empty where the results are near the reference's.
std::string far_from_reference(const Graph& lone,
                               const NamedTensors& operands,
                               const NamedTensors& got) {
  const auto reference = make_backend("ref");
  const NamedTensors wanted = evaluate(lone, *reference, operands);
  const Op& op = *node_of(lone).op;
  if (op.traits().op_class == OpClass::kContraction && op.linearity().each != 0)
    return beyond_rounding(lone, operands, got, wanted, *reference);
  for (const auto& [name, want] : wanted) {
    const double allowed = tolerance(want.type().dtype, op.traits().op_class);
    if (std::string text = difference(got.at(name), want, allowed); !text.empty()) return text;
  }
  return {};
}

}  // namespace

size_t choose_packed(const Node& /*node*/, const std::vector<Choice>& choices) {
  for (size_t i = 0; i < choices.size(); ++i)
    if (choices[i].name == "packed_gemm") return i;
  return 0;
}

bool Cases::add(const Node& node, uint64_t seed, Fill how, int64_t index_limit) {
  return add(Case{.graph = lone_node(node), .seed = seed, .how = how, .index_limit = index_limit});
}

bool Cases::add(const Node& node, NamedTensors operands) {
  return add(Case{.graph = lone_node(node), .operands = std::move(operands)});
}

bool Cases::add(Case each) {
  cuda::Printing printing = print_kernel(node_of(each.graph));
  refusal_ = printing.refusal;
  if (!printing.kernel) return false;
  each.kernel = std::move(*printing.kernel);
  host_.add(each.kernel);
  cases_.push_back(std::move(each));
  return true;
}

void Cases::expect_bits_of_cpu() {
  for (const Case& each : cases_) EXPECT_TRUE(each.kernel.same_bits) << print(each.graph);
  expect_results();
}

void Cases::expect_results() {
  host_.build();
  for (const Case& each : cases_) {
    SCOPED_TRACE(fmt::format("seed {}\n{}\n{}", each.seed, print(each.graph), each.kernel.source));
    expect_one(each);
    if (testing::Test::HasFailure()) return;
  }
}

void Cases::expect_one(const Case& each) {
  const NamedTensors inputs = inputs_of(each);
  const NamedTensors wanted = evaluate(each.graph, *make_backend("cpu"), inputs, choose_packed);
  NamedTensors first;
  for (const bool in_place : {false, true}) {
    const NamedTensors got = run(each, inputs, wanted, in_place);
    if (each.kernel.same_bits)
      for (const auto& [name, tensor] : wanted)
        EXPECT_EQ(first_difference(got.at(name), tensor), "")
            << "output " << name << (in_place ? " in place" : "");
    else if (in_place)
      EXPECT_EQ(bit_difference(got, first), "") << "other bits in one block";
    else
      EXPECT_EQ(far_from_reference(each.graph, inputs, got), "");
    first = got;
  }
}

HostFault Cases::run_with(const NamedTensors& inputs, NamedTensors& outputs) {
  host_.build();
  std::vector<const void*> from;
  std::vector<void*> to;
  for (size_t i = 0; i < inputs.size(); ++i) from.push_back(inputs.at(name_of_number(i)).data());
  for (const Output& output : cases_[0].graph.outputs())
    to.push_back(outputs.emplace(output.name, Tensor(output.value.type())).first->second.data());
  return host_.run(cases_[0].kernel, from, to, false);
}

NamedTensors Cases::inputs_of(const Case& each) {
  if (!each.operands.empty()) return each.operands;
  std::mt19937_64 random(each.seed);
  NamedTensors tensors;
  for (const Node* node : each.graph.inputs()) {
    Tensor tensor(node->outputs[0]);
    const DType dtype = tensor.type().dtype;
    fill(tensor, random, each.how);
    if (each.index_limit > 0 && is_integer(dtype))
      for (int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, static_cast<double>(random() % static_cast<uint64_t>(each.index_limit)));
    // {seed, step, first sample} of dropout: no batch begins so late that its numbers wrap.
    if (tensor.type() == TensorType{DType::kI64, {3}}) {
      int64_t& first = tensor.span<int64_t>()[2];
      first = static_cast<int64_t>(static_cast<uint64_t>(first) >> 20);
    }
    tensors.emplace(node->op_as<Input>().input_name, std::move(tensor));
  }
  return tensors;
}

// In place of what may be overwritten, with one block, and in memory of its own; nothing beside it
// is touched.
NamedTensors Cases::run(const Case& each,
                        const NamedTensors& inputs,
                        const NamedTensors& wanted,
                        bool in_place) {
  constexpr size_t kGuard = 64;
  NamedTensors copies = inputs, results;
  std::vector<const void*> from;
  for (size_t i = 0; i < inputs.size(); ++i) from.push_back(copies.at(name_of_number(i)).data());
  std::deque<Tensor> own;
  std::vector<void*> to;
  std::vector<bool> taken(inputs.size(), false);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Tensor& result = wanted.at(name_of_number(i));
    void* place = nullptr;
    for (size_t k = 0; in_place && place == nullptr && k < inputs.size(); ++k) {
      Tensor& over = copies.at(name_of_number(k));
      if (taken[k] || over.bytes() != result.bytes() || over.elements() != result.elements() ||
          !node_of(each.graph).op->may_overwrite(i, k))
        continue;
      taken[k] = true;
      place = over.data();
    }
    if (place == nullptr) {
      own.emplace_back(TensorType{DType::kU8, {static_cast<int64_t>(result.bytes() + kGuard)}});
      std::memset(own.back().data(), 0x5a, own.back().bytes());
      place = own.back().data();
    }
    to.push_back(place);
  }
  EXPECT_EQ(host_.run(each.kernel, from, to, in_place).place, 0u);
  for (size_t i = 0; i < wanted.size(); ++i) {
    Tensor got(wanted.at(name_of_number(i)).type());
    std::memcpy(got.data(), to[i], got.bytes());
    results.emplace(name_of_number(i), std::move(got));
  }
  for (const Tensor& each_own : own) {
    const auto bytes = each_own.span<uint8_t>();
    for (size_t i = bytes.size() - kGuard; i < bytes.size(); ++i)
      EXPECT_EQ(bytes[i], 0x5a) << "written behind a result";
  }
  return results;
}

}  // namespace ridge::test
