// CPU kernels that move elements, against index arithmetic written out here.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>

#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cpu_runs.h"

namespace ridge::test {
namespace {

using Index = std::vector<int64_t>;

// Calls visit(index, flat position) for every element of the shape.
template <typename F>
void for_each_index(const Shape& shape, F visit) {
  Index index(shape.size(), 0);
  for (int64_t flat = 0; flat < numel(shape); ++flat) {
    visit(index, flat);
    for (size_t i = shape.size(); i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
}

int64_t flat_of(const Index& index, const Shape& shape) {
  int64_t flat = 0;
  for (size_t i = 0; i < shape.size(); ++i) flat = flat * shape[i] + index[i];
  return flat;
}

const char* element(const Tensor& tensor, int64_t i) {
  const size_t size = size_of(tensor.type().dtype);
  return static_cast<const char*>(tensor.data()) + static_cast<size_t>(i) * size;
}

// Expects each element of y to be the element of x that `source` names, or `value` for none.
void expect_moved(const Tensor& y,
                  const Tensor& x,
                  const std::function<std::optional<int64_t>(const Index&)>& source,
                  double value = 0.0) {
  Tensor filler(TensorType{y.type().dtype, {}});
  filler.set(0, value);
  int64_t wrong = 0;
  for_each_index(y.type().shape, [&](const Index& index, int64_t flat) {
    const auto from = source(index);
    const char* want = from ? element(x, *from) : element(filler, 0);
    wrong += std::memcmp(element(y, flat), want, size_of(y.type().dtype)) != 0;
  });
  EXPECT_EQ(wrong, 0) << to_string(x.type()) << " to " << to_string(y.type());
}

Shape random_shape(Random& random, int64_t max_rank) {
  Shape shape(static_cast<size_t>(random.integer(0, max_rank)));
  for (int64_t& size : shape) size = random.chance(0.2) ? 1 : random.integer(2, 9);
  return shape;
}

// Shapes that reach every kind of tile: whole register squares, edges, several tiles, tiny rows.
std::vector<Shape> large_shapes() {
  return {{70, 300},
          {3, 129, 67},
          {2, 1000, 3},
          {2, 3, 1000},
          {40000},
          {5, 16, 16, 4},
          {65, 2, 65},
          {70, 37, 9},
          {3, 3, 20, 70}};
}

class CpuMove : public ::testing::TestWithParam<DType> {
 protected:
  // Runs y = build(x) for a random x and gives both.
  template <typename Build, typename Expect>
  void check_case(const Shape& shape, uint64_t seed, Build build, Expect expect) {
    CaseBuilder c(GetParam(), seed);
    const Value x = c.input(shape);
    c.finish({build(x, c.random())});
    const NamedTensors results = run_every_way(c);
    expect(results.at("y0"), c.tensors().at("x0"));
  }

  template <typename Check>
  void over_shapes(int64_t max_rank, Check check) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      Random random(seed);
      check(random_shape(random, max_rank), seed);
    }
    for (const Shape& shape : large_shapes()) check(shape, 99);
  }
};

TEST_P(CpuMove, Reshape) {
  over_shapes(5, [&](const Shape& shape, uint64_t seed) {
    check_case(
        shape,
        seed,
        [](Value x, Random&) { return reshape(x, {-1, 1}); },
        [](const Tensor& y, const Tensor& x) {
          expect_moved(y, x, [](const Index& i) { return i[0]; });
        });
  });
}

TEST_P(CpuMove, Transpose) {
  over_shapes(6, [&](const Shape& shape, uint64_t seed) {
    std::vector<int64_t> perm(shape.size());
    std::iota(perm.begin(), perm.end(), int64_t{0});
    do {
      check_case(
          shape,
          seed,
          [&](Value x, Random&) { return transpose(x, perm); },
          [&](const Tensor& y, const Tensor& x) {
            expect_moved(y, x, [&](const Index& i) {
              Index from(i.size());
              for (size_t a = 0; a < i.size(); ++a) from[static_cast<size_t>(perm[a])] = i[a];
              return flat_of(from, x.type().shape);
            });
          });
      if (shape.size() > 4) std::rotate(perm.begin(), perm.begin() + 2, perm.end());
    } while (shape.size() <= 4 ? std::next_permutation(perm.begin(), perm.end()) : perm[0] != 0);
  });
}

TEST_P(CpuMove, Broadcast) {
  over_shapes(4, [&](const Shape& shape, uint64_t seed) {
    Random random(seed + 1000);
    Shape from = shape, to = shape;
    for (size_t i = 0; i < shape.size(); ++i)
      if (random.chance(0.4)) from[i] = 1;
    if (random.chance(0.5)) to.insert(to.begin(), random.integer(1, 4));
    check_case(
        from,
        seed,
        [&](Value x, Random&) { return broadcast(x, to); },
        [&](const Tensor& y, const Tensor& x) {
          expect_moved(y, x, [&](const Index& i) {
            Index source(i.end() - static_cast<int64_t>(from.size()), i.end());
            for (size_t a = 0; a < from.size(); ++a)
              if (from[a] == 1) source[a] = 0;
            return flat_of(source, from);
          });
        });
  });
}

TEST_P(CpuMove, Slice) {
  over_shapes(5, [&](const Shape& shape, uint64_t seed) {
    Random random(seed + 2000);
    std::vector<int64_t> start, stop, step;
    for (int64_t size : shape) {
      start.push_back(random.chance(0.4) ? 0 : random.integer(0, size - 1));
      stop.push_back(random.chance(0.4) ? size : random.integer(start.back() + 1, size));
      step.push_back(random.chance(0.6) ? 1 : random.integer(1, 3));
    }
    check_case(
        shape,
        seed,
        [&](Value x, Random&) { return slice(x, start, stop, step); },
        [&](const Tensor& y, const Tensor& x) {
          expect_moved(y, x, [&](const Index& i) {
            Index from(i.size());
            for (size_t a = 0; a < i.size(); ++a) from[a] = start[a] + i[a] * step[a];
            return flat_of(from, shape);
          });
        });
  });
}

TEST_P(CpuMove, Pad) {
  const double value = GetParam() == DType::kBool ? 1.0 : 3.0;
  over_shapes(4, [&](const Shape& shape, uint64_t seed) {
    Random random(seed + 3000);
    std::vector<int64_t> low, high, interior;
    for (size_t i = 0; i < shape.size(); ++i) {
      low.push_back(random.chance(0.4) ? 0 : random.integer(0, 4));
      high.push_back(random.chance(0.4) ? 0 : random.integer(0, 4));
      interior.push_back(random.chance(0.6) ? 0 : random.integer(0, 3));
    }
    check_case(
        shape,
        seed,
        [&](Value x, Random&) { return pad(x, low, high, interior, value); },
        [&](const Tensor& y, const Tensor& x) {
          expect_moved(
              y,
              x,
              [&](const Index& i) -> std::optional<int64_t> {
                Index from(i.size());
                for (size_t a = 0; a < i.size(); ++a) {
                  const int64_t at = i[a] - low[a];
                  from[a] = at / (interior[a] + 1);
                  if (at < 0 || at % (interior[a] + 1) != 0 || from[a] >= shape[a]) return {};
                }
                return flat_of(from, shape);
              },
              value);
        });
  });
}

TEST_P(CpuMove, Concat) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CaseBuilder c(GetParam(), seed);
    Random random(seed + 4000);
    Shape shape = random_shape(random, 4);
    if (seed == 0) shape = {40, 300, 2};
    if (shape.empty()) shape = {3};
    const auto axis =
        static_cast<size_t>(random.integer(0, static_cast<int64_t>(shape.size()) - 1));
    std::vector<Value> parts;
    std::vector<int64_t> starts;
    int64_t total = 0;
    for (int64_t part = random.integer(1, 4); part > 0; --part) {
      shape[axis] = random.integer(1, 6);
      parts.push_back(c.input(shape));
      starts.push_back(total);
      total += shape[axis];
    }
    c.finish({concat(parts, static_cast<int64_t>(axis))});
    const NamedTensors results = run_every_way(c);
    const Tensor& y = results.at("y0");
    ASSERT_EQ(y.type().shape[axis], total);
    for_each_index(y.type().shape, [&](const Index& index, int64_t flat) {
      size_t part = starts.size() - 1;
      while (starts[part] > index[axis]) --part;
      Index from = index;
      from[axis] -= starts[part];
      const Tensor& x = c.tensors().at(fmt::format("x{}", part));
      EXPECT_EQ(
          std::memcmp(
              element(y, flat), element(x, flat_of(from, x.type().shape)), size_of(GetParam())),
          0);
    });
  }
}

TEST_P(CpuMove, Gather) {
  if (GetParam() == DType::kBool) GTEST_SKIP() << "gather takes numbers only";
  const auto check_gather = [&](const Shape& shape, const Shape& places, int64_t axis, bool wide) {
    CaseBuilder c(GetParam(), 7);
    const Value x = c.input(shape);
    const DType index = wide ? DType::kI64 : DType::kI32;
    c.finish({gather(x, c.indices(index, places, 0, shape[static_cast<size_t>(axis)] - 1), axis)});
    const NamedTensors results = run_every_way(c);
    const Tensor& indices = c.tensors().at("x1");
    expect_moved(results.at("y0"), c.tensors().at("x0"), [&](const Index& i) {
      const Index place(i.begin() + axis, i.begin() + axis + static_cast<int64_t>(places.size()));
      Index from(i.begin(), i.begin() + axis);
      from.push_back(static_cast<int64_t>(indices.at(flat_of(place, places))));
      from.insert(from.end(), i.begin() + axis + static_cast<int64_t>(places.size()), i.end());
      return flat_of(from, shape);
    });
  };
  check_gather({7}, {}, 0, true);
  check_gather({7, 5}, {4}, 0, false);
  check_gather({7, 5}, {4, 3}, 1, true);
  check_gather({3, 6, 2, 2}, {2, 1, 5}, 2, false);
  check_gather({50, 130}, {3000}, 0, true);
  check_gather({4, 40000}, {5}, 0, true);  // rows longer than a block
  check_gather({40000}, {40000}, 0, false);
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, CpuMove, ::testing::ValuesIn(kAllDTypes), [](const auto& each) {
  return std::string(name_of(each.param));
});

TEST(CpuSource, ConstantsAndRamps) {
  for (DType dtype : kAllDTypes) {
    CaseBuilder c(dtype, 1);
    c.input({1});
    const bool is_bool = dtype == DType::kBool;
    std::vector<double> values(35);
    for (size_t i = 0; i < values.size(); ++i) values[i] = is_bool ? i % 3 == 0 : double(i) * 3.0;
    const std::vector<Value> ys = {constant(c.graph(), {dtype, {5, 7}}, values),
                                   constant(c.graph(), {dtype, {300, 111}}, 1.0),
                                   constant(c.graph(), {dtype, {}}, 1.0)};
    c.finish(ys);
    const NamedTensors results = run_every_way(c);
    for (int64_t i = 0; i < 35; ++i) EXPECT_EQ(results.at("y0").at(i), values[size_t(i)]);
    for (int64_t i = 0; i < 300 * 111; ++i) ASSERT_EQ(results.at("y1").at(i), 1.0);
    EXPECT_EQ(results.at("y2").at(0), 1.0);
  }
}

TEST(CpuSource, Iota) {
  for (DType dtype : kAllDTypes) {
    if (dtype == DType::kBool) continue;
    for (const Shape& shape : {Shape{100}, {120, 3, 90}, {3, 100}, {128}, {1}})
      for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
        CaseBuilder c(dtype, 1);
        c.input({1});
        c.finish({iota(c.graph(), {dtype, shape}, axis)});
        const NamedTensors results = run_every_way(c);
        int64_t wrong = 0;
        for_each_index(shape, [&](const Index& index, int64_t flat) {
          wrong += results.at("y0").at(flat) != double(index[size_t(axis)]);
        });
        EXPECT_EQ(wrong, 0) << name_of(dtype) << to_string(shape) << axis;
      }
  }
}

TEST(CpuGather, RefusesIndicesOutOfRange) {
  for (DType index : {DType::kI64, DType::kI32})
    for (double bad : {-1.0, 4.0}) {
      CaseBuilder c(DType::kF32, 1);
      const Value x = c.input({4, 3});
      const Value places = c.given({index, {2, 3}}, {0, 3, 1, 2, bad, -7});
      c.finish({gather(x, places, 0)});
      try {
        run_every_way(c);
        ADD_FAILURE() << "no error for " << bad;
      } catch (const UserError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find(fmt::format("[gather] index {} at [1,1]", bad)), text.npos) << text;
        EXPECT_NE(text.find("expected 0 to 3"), text.npos) << text;
      }
    }
  CaseBuilder c(DType::kF32, 1);
  const Value x = c.input({2, 3});
  c.finish({scatter_add(x, c.given({DType::kI64, {2}}, {0, 9}), 0, 9)});
  EXPECT_THROW(run_every_way(c), UserError);
}

TEST(CpuGather, ScatterAddSumsInOrder) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    CaseBuilder c(dtype, 5);
    const int64_t outer = 2, count = 90, inner = 71, size = 13;
    const Value x = c.input({outer, count, inner});
    c.finish({scatter_add(x, c.indices(DType::kI64, {count}, 0, size - 1), 1, size)});
    const NamedTensors results = run_every_way(c);
    const Tensor &updates = c.tensors().at("x0"), &indices = c.tensors().at("x1");
    // The same sums, in the same order, in the dtype of the sum.
    std::vector<double> wide(static_cast<size_t>(outer * size * inner), 0.0);
    std::vector<float> narrow(wide.size(), 0.0f);
    for (int64_t a = 0; a < outer; ++a)
      for (int64_t k = 0; k < count; ++k)
        for (int64_t b = 0; b < inner; ++b) {
          const auto to = static_cast<size_t>((a * size + int64_t(indices.at(k))) * inner + b);
          const double update = updates.at((a * count + k) * inner + b);
          wide[to] += update;
          narrow[to] += static_cast<float>(update);
        }
    Tensor want(results.at("y0").type());
    for (size_t i = 0; i < wide.size(); ++i)
      want.set(int64_t(i), dtype == DType::kF64 ? wide[i] : double(narrow[i]));
    EXPECT_TRUE(results.at("y0").same_bits(want)) << name_of(dtype);
  }
}

TEST(CpuGather, ScatterAddWrapsIntegers) {
  for (DType dtype : {DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI32, DType::kI64}) {
    CaseBuilder c(dtype, 5);
    const double big = dispatch(dtype, []<typename T>(TypeTag<T>) {
      if constexpr (is_float_type<T> || sizeof(T) == 8)
        return 0x1p62;  // four of them are 2^64, which is 0
      else
        return static_cast<double>(std::numeric_limits<T>::max());
    });
    const Value x = c.given({dtype, {5}}, {big, 5, big, big, big});
    c.finish({scatter_add(x, c.given({DType::kI32, {5}}, {1, 0, 1, 1, 1}), 0, 3)});
    const NamedTensors results = run_every_way(c);
    const double four = dtype == DType::kI64 ? 0.0 : double(int8_t(-4));
    const bool is_unsigned = dtype == DType::kU8 || dtype == DType::kU16;
    EXPECT_EQ(results.at("y0").at(0), 5.0);
    EXPECT_EQ(results.at("y0").at(1), is_unsigned ? big + 1.0 + four : four);
    EXPECT_EQ(results.at("y0").at(2), 0.0);
  }
}

TEST(CpuGather, OneHot) {
  for (DType to : kAllDTypes)
    for (DType index : {DType::kI64, DType::kI32}) {
      CaseBuilder c(index, 3);
      const Value x = c.given({index, {2, 3}}, {0, 4, 5, -1, 2, 100});
      c.finish({one_hot(x, 5, to), one_hot(x, 20000, to)});
      const NamedTensors results = run_every_way(c);
      const Tensor& places = c.tensors().at("x0");
      for (const char* name : {"y0", "y1"}) {
        const Tensor& y = results.at(name);
        const int64_t depth = y.type().shape[2];
        int64_t wrong = 0;
        for (int64_t i = 0; i < y.elements(); ++i)
          wrong += y.at(i) != (double(i % depth) == places.at(i / depth) ? 1.0 : 0.0);
        EXPECT_EQ(wrong, 0) << name_of(to);
      }
    }
}

}  // namespace
}  // namespace ridge::test
