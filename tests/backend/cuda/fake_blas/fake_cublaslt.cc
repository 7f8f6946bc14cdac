// A stand-in for cuBLASLt: the functions that Ridge calls, as their published reference describes
// them. Products are queued as kernels of the stand-in driver, so that they run when its streams
// do; each spoils its workspace first.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ridge/backend/cuda/blas/cublaslt_api.h"
#include "tests/backend/cuda/fake_blas/fake_blas.h"
#include "tests/backend/cuda/fake_blas/fake_product.h"

namespace {

using ridge::cuda::BlasAlgorithm;
using ridge::cuda::BlasProposal;
using ridge::cuda::BlasResult;
using ridge::test::FakeAlgorithm;
using ridge::test::FakeLaunch;
using ridge::test::LibraryHandle;
using ridge::test::Objects;
using ridge::test::Refused;
using ridge::test::require;

using namespace ridge::test::fake_blas;

struct Preference {
  uint64_t workspace = 0;
};
class Machine final : public ridge::test::RecordedLibrary<ridge::test::FakeBlas> {
 public:
  Machine() : RecordedLibrary("cublaslt", 5) {
    // The environment steers the stand-in in programs that no test steers.
    const char* const file = std::getenv("FAKE_CUBLASLT_DRIVER");
    if (file == nullptr) return;
    reset(file);
    for (uint32_t tile = 2; tile <= number_of("FAKE_CUBLASLT_TILES", 1); ++tile)
      algorithms.push_back({.tile = tile});
  }
  void reset(const std::string& file) override {
    const std::lock_guard lock(mutex_);
    forget(file);
    matmuls.clear(), layouts.clear(), preferences.clear(), handles.clear(), products.clear();
    algorithms = {{}};
    fewest_columns_of_i8 = 0;
  }
  void set_algorithms(std::vector<FakeAlgorithm> all) override { algorithms = std::move(all); }
  void set_fewest_columns_of_i8(uint64_t columns) override { fewest_columns_of_i8 = columns; }
  std::vector<std::string> live() const override {
    std::vector<std::string> all;
    all.insert(all.end(), matmuls.size(), matmuls.kind);
    all.insert(all.end(), layouts.size(), layouts.kind);
    all.insert(all.end(), preferences.size(), preferences.kind);
    all.insert(all.end(), handles.size(), handles.kind);
    return all;
  }

  template <typename T>
  T& find(Objects<T>& all, const void* handle) {
    const auto found = all.find(handle);
    if (found != all.end()) return *found->second;
    add_fault(fmt::format("a {} that is not alive", all.kind));
    throw Refused{kInvalidValue};
  }
  template <typename T>
  int destroy(const char* name, Objects<T>& all, const void* handle) {
    return destroys(name, [&](std::string&) {
      find(all, handle);
      all.erase(handle);
    });
  }

  Objects<Matmul> matmuls{"matmul"};
  Objects<Layout> layouts{"layout"};
  Objects<Preference> preferences{"preference"};
  Objects<LibraryHandle> handles{"handle"};
  std::vector<std::unique_ptr<Product>> products;
  std::vector<FakeAlgorithm> algorithms;
  uint64_t fewest_columns_of_i8 = 0;
};

Machine& machine() {
  static Machine made;
  return made;
}

constexpr uint64_t kMagic = 0x6265626562656265;

// Set attributes have a size each.
template <typename T>
void take(const void* value, size_t bytes, T& to) {
  require(bytes == sizeof(T), kInvalidValue);
  std::memcpy(&to, value, sizeof(T));
}

// Sizes of the product that fit; false where they do not.
bool fits(const Matmul& op, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const uint64_t m = op.transpose_a != 0 ? a.columns : a.rows;
  const uint64_t k = op.transpose_a != 0 ? a.rows : a.columns;
  const uint64_t n = op.transpose_b != 0 ? b.rows : b.columns;
  const uint64_t k_of_b = op.transpose_b != 0 ? b.columns : b.rows;
  for (const Layout* each : {&a, &b, &c, &d})
    if (each->ld < static_cast<int64_t>(each->rows) || each->batches != d.batches) return false;
  return k == k_of_b && c.rows == m && c.columns == n && d.rows == m && d.columns == n;
}

// True when the epilogue's operands are there, and its matrix is aligned as NVIDIA's reference
// asks.
bool has_operands(const Matmul& op, const Layout& d) {
  const auto is_aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if ((op.epilogue & kBias) != 0 && (op.bias == nullptr || !is_aligned(op.bias))) return false;
  if ((op.epilogue & kAux) == 0) return true;
  return op.aux != nullptr && is_aligned(op.aux) && op.aux_ld % 8 == 0 &&
         op.aux_ld >= static_cast<int64_t>(d.rows);
}

// NVIDIA's reference asks this of data in a regular order: the first factor transposed and the
// second one not, and leading dimensions, m and k multiples of four.
bool multiplies_bytes(const Matmul& op, const Layout& a, const Layout& b, const Layout& d) {
  if (op.scale != kR32I || a.type != kR8I || d.type != kR32I || op.epilogue != kNone) return false;
  if (op.transpose_a == 0 || op.transpose_b != 0) return false;
  for (const Layout* each : {&a, &b, &d})
    if (each->ld % 4 != 0 || each->offset % 4 != 0) return false;
  return d.rows % 4 == 0 && b.rows % 4 == 0 && b.columns >= machine().fewest_columns_of_i8;
}

bool is_supported(const Matmul& op, const Layout& a, const Layout& b, const Layout& d) {
  if (a.type != b.type) return false;
  if (op.compute == kCompute32I) return multiplies_bytes(op, a, b, d);
  if (a.type == kR8I || d.type == kR32I) return false;
  if (op.epilogue != kNone) {
    constexpr uint32_t kKnown[] = {
        kBias, kGelu, kGelu | kAux, kGelu | kBias, kGelu | kAux | kBias, kDGelu | kAux};
    if (std::find(std::begin(kKnown), std::end(kKnown), op.epilogue) == std::end(kKnown))
      return false;
    // The stand-in has only the types that Ridge asks for; a batch would need strides.
    if ((d.type != kR16F && d.type != kR16BF) || d.type != a.type || d.batches != 1 ||
        !has_operands(op, d))
      return false;
  }
  if (op.compute == kCompute64F) return op.scale == kR64F && a.type == kR64F && d.type == kR64F;
  if (op.scale != kR32F || a.type == kR64F || d.type == kR64F) return false;
  if (op.compute == kCompute32FFastTf32) return a.type == kR32F && d.type == kR32F;
  return op.compute == kCompute32F && (d.type == a.type || d.type == kR32F);
}

BlasAlgorithm packed(const FakeAlgorithm& a) {
  const auto two = [](uint64_t low, uint64_t high) { return low | high << 32; };
  return {{two(static_cast<uint32_t>(a.id), a.tile),
           two(a.split_k, a.reduction),
           two(a.swizzle, a.custom),
           two(a.stages, uint64_t{a.inner} | uint64_t{a.cluster} << 16),
           a.workspace_bytes,
           kMagic,
           0,
           0}};
}

void describe(
    std::string& line, const Matmul& op, const Layout& a, const Layout& b, const Layout& d) {
  const auto letter = [](int transposes) { return transposes != 0 ? 'T' : 'N'; };
  line +=
      fmt::format(" compute {} {}{}", op.compute, letter(op.transpose_a), letter(op.transpose_b));
  line += fmt::format(" {}x{} {}x{}", a.rows, a.columns, b.rows, b.columns);
  line += fmt::format(" -> {}x{}, types {} {} {}", d.rows, d.columns, a.type, b.type, d.type);
  line += fmt::format(", {} at a time", d.batches);
  if (op.epilogue != kNone) line += fmt::format(", epilogue {}", op.epilogue);
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are those of the library.
extern "C" {

ridge::test::FakeBlas* fake_blas() { return &machine(); }

size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusName(int status) {
  return status == kExecutionFailed ? "CUBLAS_STATUS_EXECUTION_FAILED"
         : status == kNotSupported  ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                    : "CUBLAS_STATUS_OTHER";
}
const char* cublasLtGetStatusString(int) { return "what the library says"; }

int cublasLtCreate(void** handle) {
  return machine().called(__func__, [&](std::string&) {
    LibraryHandle made;
    // Those who want no results set the variable: a head of GPT-2 would be computed for an hour.
    const bool is_empty = std::getenv("FAKE_CUBLASLT_EMPTY") != nullptr;
    const auto run = [is_empty](const FakeLaunch& launch) {
      if (!is_empty) multiply(*launch.pointer<Product>(0));
      return 0;
    };
    require(machine().load(run, made), 1);
    *handle = machine().handles.make(made);
  });
}

int cublasLtDestroy(void* handle) {
  Machine& blas = machine();
  if (const auto found = blas.handles.find(handle); found != blas.handles.end())
    blas.unload(*found->second);
  return blas.destroy(__func__, blas.handles, handle);
}

int cublasLtMatmulDescCreate(void** matmul, int compute, int scale) {
  return machine().called(
      __func__, [&](std::string&) { *matmul = machine().matmuls.make(Matmul{compute, scale}); });
}
int cublasLtMatmulDescDestroy(void* matmul) {
  return machine().destroy(__func__, machine().matmuls, matmul);
}
int cublasLtMatmulDescSetAttribute(void* matmul, int attribute, const void* value, size_t bytes) {
  return machine().called(__func__, [&](std::string&) {
    Matmul& op = machine().find(machine().matmuls, matmul);
    if (attribute == 3) return take(value, bytes, op.transpose_a);
    if (attribute == 4) return take(value, bytes, op.transpose_b);
    if (attribute == 7) return take(value, bytes, op.epilogue);
    if (attribute == 8) return take(value, bytes, op.bias);
    if (attribute == 11) return take(value, bytes, op.aux);
    if (attribute == 12) return take(value, bytes, op.aux_ld);
    throw Refused{kInvalidValue};
  });
}

int cublasLtMatrixLayoutCreate(
    void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  return machine().called(__func__, [&](std::string&) {
    *layout = machine().layouts.make(Layout{type, rows, columns, ld});
  });
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  return machine().destroy(__func__, machine().layouts, layout);
}
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  return machine().called(__func__, [&](std::string&) {
    Layout& l = machine().find(machine().layouts, layout);
    require(attribute == 5 || attribute == 6, kInvalidValue);
    attribute == 5 ? take(value, bytes, l.batches) : take(value, bytes, l.offset);
  });
}

int cublasLtMatmulPreferenceCreate(void** preference) {
  return machine().called(__func__,
                          [&](std::string&) { *preference = machine().preferences.make(); });
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  return machine().destroy(__func__, machine().preferences, preference);
}
int cublasLtMatmulPreferenceSetAttribute(void* preference,
                                         int attribute,
                                         const void* value,
                                         size_t bytes) {
  return machine().called(__func__, [&](std::string& line) {
    Preference& p = machine().find(machine().preferences, preference);
    if (attribute == 1) return take(value, bytes, p.workspace);
    require(attribute == 3 || (attribute >= 5 && attribute <= 8), kInvalidValue);
    uint32_t number = 0;
    take(value, bytes, number);
    line += fmt::format(" {}={}", attribute, number);
  });
}

int cublasLtMatmulAlgoGetHeuristic(void* handle,
                                   void* matmul,
                                   void* a,
                                   void* b,
                                   void* c,
                                   void* d,
                                   void* preference,
                                   int requested,
                                   BlasProposal* results,
                                   int* count) {
  return machine().called(__func__, [&](std::string& line) {
    Machine& blas = machine();
    blas.find(blas.handles, handle);
    const Matmul& op = blas.find(blas.matmuls, matmul);
    const Layout &la = blas.find(blas.layouts, a), &lb = blas.find(blas.layouts, b),
                 &lc = blas.find(blas.layouts, c), &ld = blas.find(blas.layouts, d);
    const Preference& p = blas.find(blas.preferences, preference);
    describe(line, op, la, lb, ld);
    *count = 0;
    require(fits(op, la, lb, lc, ld), kInvalidValue);
    require(is_supported(op, la, lb, ld), kNotSupported);
    for (const FakeAlgorithm& each : blas.algorithms) {
      if (*count == requested || each.workspace_bytes > p.workspace) continue;
      results[(*count)++] = {
          packed(each), each.workspace_bytes, static_cast<BlasResult>(each.state), 1.0F, {}};
    }
    require(*count > 0, kNotSupported);
  });
}

int cublasLtMatmulAlgoConfigGetAttribute(
    const BlasAlgorithm* algorithm, int attribute, void* value, size_t bytes, size_t* written) {
  return machine().called(__func__, [&](std::string&) {
    const auto& data = algorithm->data;
    require(data[5] == kMagic && attribute >= 0 && attribute <= 8, kInvalidValue);
    const uint64_t number = attribute <= 6   ? data[attribute / 2] >> (attribute % 2 * 32)
                            : attribute == 7 ? data[3] >> 32
                                             : data[3] >> 48;
    *written = attribute <= 6 ? 4 : 2;
    require(bytes == *written, kInvalidValue);
    std::memcpy(value, &number, bytes);
  });
}

int cublasLtMatmul(void* handle,
                   void* matmul,
                   const void* alpha,
                   const void* a,
                   void* a_layout,
                   const void* b,
                   void* b_layout,
                   const void* beta,
                   const void* c,
                   void* c_layout,
                   void* d,
                   void* d_layout,
                   const BlasAlgorithm* algorithm,
                   void* workspace,
                   size_t workspace_bytes,
                   void* stream) {
  return machine().called(__func__, [&](std::string& line) {
    Machine& blas = machine();
    LibraryHandle& state = blas.find(blas.handles, handle);
    const Matmul& op = blas.find(blas.matmuls, matmul);
    const Layout &la = blas.find(blas.layouts, a_layout), &lb = blas.find(blas.layouts, b_layout),
                 &lc = blas.find(blas.layouts, c_layout), &ld = blas.find(blas.layouts, d_layout);
    require(algorithm->data[5] == kMagic, kInvalidValue);
    describe(line, op, la, lb, ld);
    require(fits(op, la, lb, lc, ld) && is_supported(op, la, lb, ld), kInvalidValue);
    for (const void* each : {a, b, c, static_cast<const void*>(d)})
      require(op.compute != kCompute32I || reinterpret_cast<uintptr_t>(each) % 4 == 0,
              kNotSupported);
    // The library refuses others on Hopper.
    const bool is_aligned = reinterpret_cast<uintptr_t>(workspace) % 256 == 0;
    require(workspace_bytes >= algorithm->data[4] && is_aligned, kInvalidValue);
    require(blas.load_late(state, fmt::format("{} {}", algorithm->data[0], line)),
            kExecutionFailed);
    Product product{.matmul = op, .a = la, .b = lb, .c = lc, .d = ld};
    product.from_a = a, product.from_b = b, product.from_c = c, product.to = d;
    product.alpha = read(op.scale, alpha, 0), product.beta = read(op.scale, beta, 0);
    product.workspace = workspace, product.workspace_bytes = algorithm->data[4];
    product.tile = static_cast<uint32_t>(algorithm->data[0] >> 32);
    blas.products.push_back(std::make_unique<Product>(product));
    const void* parameter = blas.products.back().get();
    // The addresses are for the driver's log.
    void* parameters[] = {&parameter, &a, &b, &d, &workspace};
    state.stream = stream;
    require(blas.launch(state, parameters), kExecutionFailed);
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
