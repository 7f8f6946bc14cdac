// A stand-in for cuBLASLt: the functions that Ridge calls, as their published reference describes
// them. Products are queued as kernels of the stand-in driver, so that they run when its streams
// do; each spoils its workspace first.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "ridge/backend/cuda/cublaslt_api.h"
#include "tests/backend/cuda/fake_blas/fake_blas.h"
#include "tests/backend/cuda/fake_blas/fake_product.h"
#include "tests/backend/cuda/fake_driver/fake_cuda.h"

namespace {

using ridge::cuda::BlasAlgorithm;
using ridge::cuda::BlasProposal;
using ridge::cuda::BlasResult;
using ridge::test::FakeAlgorithm;
using ridge::test::FakeCuda;
using ridge::test::FakeCudaEntry;
using ridge::test::FakeLaunch;

using namespace ridge::test::fake_blas;

struct Preference {
  uint64_t workspace = 0;
};
struct Handle {
  void *module = nullptr, *function = nullptr;
  std::map<std::string, void*> loaded = {};  // by product: what is loaded when it first runs
};

class Machine final : public ridge::test::RecordedLibrary<ridge::test::FakeBlas> {
 public:
  Machine() {
    // Of programs that no test steers.
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
  }
  void set_algorithms(std::vector<FakeAlgorithm> all) override { algorithms = std::move(all); }
  std::vector<std::string> live() const override {
    std::vector<std::string> all;
    const auto add = [&](const char* name, size_t count) {
      for (size_t i = 0; i < count; ++i) all.emplace_back(name);
    };
    add("matmul", matmuls.size()), add("layout", layouts.size());
    add("preference", preferences.size()), add("handle", handles.size());
    return all;
  }

  template <typename T>
  T* find(std::map<void*, std::unique_ptr<T>>& all, void* handle, const char* what) {
    const auto found = all.find(handle);
    if (found != all.end()) return found->second.get();
    add_fault(fmt::format("a {} that is not alive", what));
    return nullptr;
  }
  template <typename T>
  static void* add(std::map<void*, std::unique_ptr<T>>& all, T made) {
    auto owned = std::make_unique<T>(made);
    void* const handle = owned.get();
    all.emplace(handle, std::move(owned));
    return handle;
  }
  template <typename T>
  int destroy(const char* name, std::map<void*, std::unique_ptr<T>>& all, void* handle) {
    return called(name, true, [&](std::string&) {
      if (find(all, handle, name) == nullptr) return int{kInvalidValue};
      all.erase(handle);
      return int{kSuccess};
    });
  }

  std::map<void*, std::unique_ptr<Matmul>> matmuls;
  std::map<void*, std::unique_ptr<Layout>> layouts;
  std::map<void*, std::unique_ptr<Preference>> preferences;
  std::map<void*, std::unique_ptr<Handle>> handles;
  std::vector<std::unique_ptr<Product>> products;
  std::vector<FakeAlgorithm> algorithms;
};

Machine& machine() {
  static Machine made;
  return made;
}

constexpr const char* kPtx =
    ".version 8.0\n.target sm_80\n.visible .entry cublaslt(.param .u64 product, .param .u64 a, "
    ".param .u64 b, .param .u64 d, .param .u64 workspace) { ret; }\n";
constexpr uint64_t kMagic = 0x6265626562656265;

// Set attributes have a size each.
template <typename T>
bool take(const void* value, size_t bytes, T& to) {
  if (bytes != sizeof(T)) return false;
  std::memcpy(&to, value, sizeof(T));
  return true;
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

// What an epilogue needs is there, and its matrix is aligned as the reference asks for.
bool has_operands(const Matmul& op, const Layout& d) {
  const auto is_aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if ((op.epilogue & kBias) != 0 && (op.bias == nullptr || !is_aligned(op.bias))) return false;
  if ((op.epilogue & kAux) == 0) return true;
  return op.aux != nullptr && is_aligned(op.aux) && op.aux_ld % 8 == 0 &&
         op.aux_ld >= static_cast<int64_t>(d.rows);
}

bool is_supported(const Matmul& op, const Layout& a, const Layout& b, const Layout& d) {
  if (a.type != b.type) return false;
  if (op.epilogue != kNone) {
    constexpr uint32_t kKnown[] = {
        kBias, kGelu, kGelu | kAux, kGelu | kBias, kGelu | kAux | kBias, kDGelu | kAux};
    if (std::find(std::begin(kKnown), std::end(kKnown), op.epilogue) == std::end(kKnown))
      return false;
    // Of the types, the stand-in has those that Ridge asks for; a batch would need strides.
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

int describe(
    std::string& line, const Matmul& op, const Layout& a, const Layout& b, const Layout& d) {
  line += fmt::format(" compute {} {}{} {}x{} {}x{} -> {}x{}, types {} {} {}, {} at a time",
                      op.compute,
                      op.transpose_a != 0 ? 'T' : 'N',
                      op.transpose_b != 0 ? 'T' : 'N',
                      a.rows,
                      a.columns,
                      b.rows,
                      b.columns,
                      d.rows,
                      d.columns,
                      a.type,
                      b.type,
                      d.type,
                      d.batches);
  if (op.epilogue != kNone) line += fmt::format(", epilogue {}", op.epilogue);
  return 0;
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
  return machine().called("cublasLtCreate", false, [&](std::string&) {
    Machine& blas = machine();
    Handle made;
    auto* const entry = blas.driver_call<FakeCudaEntry>(ridge::test::kFakeCudaEntry);
    if (entry == nullptr) return 1;
    entry()->on_kernel("cublaslt", [](const FakeLaunch& launch) {
      multiply(*launch.pointer<Product>(0));
      return 0;
    });
    const auto load =
        blas.driver_call<int(void**, const void*, unsigned, int*, void**)>("cuModuleLoadDataEx");
    const auto get = blas.driver_call<int(void**, void*, const char*)>("cuModuleGetFunction");
    if (load(&made.module, kPtx, 0, nullptr, nullptr) != 0) return 1;
    if (get(&made.function, made.module, "cublaslt") != 0) {
      blas.driver_call<int(void*)>("cuModuleUnload")(made.module);
      return 1;
    }
    *handle = Machine::add(blas.handles, made);
    return int{kSuccess};
  });
}

int cublasLtDestroy(void* handle) {
  Machine& blas = machine();
  const auto found = blas.handles.find(handle);
  if (found != blas.handles.end()) {
    const auto unload = blas.driver_call<int(void*)>("cuModuleUnload");
    for (const auto& [product, module] : found->second->loaded) unload(module);
    unload(found->second->module);
  }
  return blas.destroy("cublasLtDestroy", blas.handles, handle);
}

int cublasLtMatmulDescCreate(void** matmul, int compute, int scale) {
  return machine().called("cublasLtMatmulDescCreate", false, [&](std::string&) {
    *matmul = Machine::add(machine().matmuls, Matmul{compute, scale});
    return int{kSuccess};
  });
}
int cublasLtMatmulDescDestroy(void* matmul) {
  return machine().destroy("cublasLtMatmulDescDestroy", machine().matmuls, matmul);
}
int cublasLtMatmulDescSetAttribute(void* matmul, int attribute, const void* value, size_t bytes) {
  return machine().called("cublasLtMatmulDescSetAttribute", false, [&](std::string&) {
    Matmul* const op = machine().find(machine().matmuls, matmul, "matmul");
    if (op == nullptr) return int{kInvalidValue};
    if (attribute == 3 && take(value, bytes, op->transpose_a)) return int{kSuccess};
    if (attribute == 4 && take(value, bytes, op->transpose_b)) return int{kSuccess};
    if (attribute == 7 && take(value, bytes, op->epilogue)) return int{kSuccess};
    if (attribute == 8 && take(value, bytes, op->bias)) return int{kSuccess};
    if (attribute == 11 && take(value, bytes, op->aux)) return int{kSuccess};
    if (attribute == 12 && take(value, bytes, op->aux_ld)) return int{kSuccess};
    return int{kInvalidValue};
  });
}

int cublasLtMatrixLayoutCreate(
    void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  return machine().called("cublasLtMatrixLayoutCreate", false, [&](std::string&) {
    *layout = Machine::add(machine().layouts, Layout{type, rows, columns, ld});
    return int{kSuccess};
  });
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  return machine().destroy("cublasLtMatrixLayoutDestroy", machine().layouts, layout);
}
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  return machine().called("cublasLtMatrixLayoutSetAttribute", false, [&](std::string&) {
    Layout* const l = machine().find(machine().layouts, layout, "layout");
    if (l == nullptr) return int{kInvalidValue};
    if (attribute == 5 && take(value, bytes, l->batches)) return int{kSuccess};
    if (attribute == 6 && take(value, bytes, l->offset)) return int{kSuccess};
    return int{kInvalidValue};
  });
}

int cublasLtMatmulPreferenceCreate(void** preference) {
  return machine().called("cublasLtMatmulPreferenceCreate", false, [&](std::string&) {
    *preference = Machine::add(machine().preferences, Preference{});
    return int{kSuccess};
  });
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  return machine().destroy("cublasLtMatmulPreferenceDestroy", machine().preferences, preference);
}
int cublasLtMatmulPreferenceSetAttribute(void* preference,
                                         int attribute,
                                         const void* value,
                                         size_t bytes) {
  return machine().called("cublasLtMatmulPreferenceSetAttribute", false, [&](std::string& line) {
    Preference* const p = machine().find(machine().preferences, preference, "preference");
    if (p == nullptr) return int{kInvalidValue};
    uint32_t number = 0;
    if (attribute == 1) return take(value, bytes, p->workspace) ? int{kSuccess} : kInvalidValue;
    if ((attribute == 3 || (attribute >= 5 && attribute <= 8)) && take(value, bytes, number)) {
      line += fmt::format(" {}={}", attribute, number);
      return int{kSuccess};
    }
    return int{kInvalidValue};
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
  return machine().called("cublasLtMatmulAlgoGetHeuristic", false, [&](std::string& line) {
    Machine& blas = machine();
    const Matmul* const op = blas.find(blas.matmuls, matmul, "matmul");
    const Layout *const la = blas.find(blas.layouts, a, "layout"),
                        *const lb = blas.find(blas.layouts, b, "layout"),
                        *const lc = blas.find(blas.layouts, c, "layout"),
                        *const ld = blas.find(blas.layouts, d, "layout");
    const Preference* const p = blas.find(blas.preferences, preference, "preference");
    if (blas.find(blas.handles, handle, "handle") == nullptr || op == nullptr || la == nullptr ||
        lb == nullptr || lc == nullptr || ld == nullptr || p == nullptr)
      return int{kInvalidValue};
    describe(line, *op, *la, *lb, *ld);
    *count = 0;
    if (!fits(*op, *la, *lb, *lc, *ld)) return int{kInvalidValue};
    if (!is_supported(*op, *la, *lb, *ld)) return int{kNotSupported};
    for (const FakeAlgorithm& each : blas.algorithms) {
      if (*count == requested || each.workspace_bytes > p->workspace) continue;
      results[(*count)++] = {
          packed(each), each.workspace_bytes, static_cast<BlasResult>(each.state), 1.0F, {}};
    }
    return *count == 0 ? int{kNotSupported} : int{kSuccess};
  });
}

int cublasLtMatmulAlgoConfigGetAttribute(
    const BlasAlgorithm* algorithm, int attribute, void* value, size_t bytes, size_t* written) {
  return machine().called("cublasLtMatmulAlgoConfigGetAttribute", false, [&](std::string&) {
    if (algorithm->data[5] != kMagic) return int{kInvalidValue};
    const auto give = [&](uint64_t number, size_t size) {
      if (bytes != size) return int{kInvalidValue};
      std::memcpy(value, &number, size);
      *written = size;
      return int{kSuccess};
    };
    const auto& data = algorithm->data;
    if (attribute >= 0 && attribute <= 6)
      return give(data[attribute / 2] >> (attribute % 2 * 32) & 0xffffffff, 4);
    if (attribute == 7) return give(data[3] >> 32 & 0xffff, 2);
    if (attribute == 8) return give(data[3] >> 48, 2);
    return int{kInvalidValue};
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
  return machine().called("cublasLtMatmul", false, [&](std::string& line) {
    Machine& blas = machine();
    Handle* const state = blas.find(blas.handles, handle, "handle");
    const Matmul* const op = blas.find(blas.matmuls, matmul, "matmul");
    const Layout *const la = blas.find(blas.layouts, a_layout, "layout"),
                        *const lb = blas.find(blas.layouts, b_layout, "layout"),
                        *const lc = blas.find(blas.layouts, c_layout, "layout"),
                        *const ld = blas.find(blas.layouts, d_layout, "layout");
    if (state == nullptr || op == nullptr || la == nullptr || lb == nullptr || lc == nullptr ||
        ld == nullptr || algorithm->data[5] != kMagic)
      return int{kInvalidValue};
    describe(line, *op, *la, *lb, *ld);
    if (!fits(*op, *la, *lb, *lc, *ld) || !is_supported(*op, *la, *lb, *ld))
      return int{kInvalidValue};
    const bool is_aligned = reinterpret_cast<uintptr_t>(workspace) % 16 == 0;
    if (workspace_bytes < algorithm->data[4] || !is_aligned) return int{kInvalidValue};
    // As the library does where CUDA_MODULE_LOADING is LAZY, the default.
    void*& module = state->loaded[fmt::format("{} {}", algorithm->data[0], line)];
    const auto load =
        blas.driver_call<int(void**, const void*, unsigned, int*, void**)>("cuModuleLoadDataEx");
    if (module == nullptr && load(&module, kPtx, 0, nullptr, nullptr) != 0)
      return int{kExecutionFailed};
    auto product =
        std::make_unique<Product>(Product{*op,
                                          *la,
                                          *lb,
                                          *lc,
                                          *ld,
                                          a,
                                          b,
                                          c,
                                          d,
                                          read(op->scale, alpha, 0),
                                          read(op->scale, beta, 0),
                                          workspace,
                                          algorithm->data[4],
                                          static_cast<uint32_t>(algorithm->data[0] >> 32)});
    unsigned long long parameter = reinterpret_cast<uintptr_t>(product.get());
    // The addresses are for the driver's log.
    void* parameters[] = {&parameter, &a, &b, &d, &workspace};
    const auto launch = blas.driver_call<int(void*,
                                             unsigned,
                                             unsigned,
                                             unsigned,
                                             unsigned,
                                             unsigned,
                                             unsigned,
                                             unsigned,
                                             void*,
                                             void**,
                                             void**)>("cuLaunchKernel");
    const int code = launch(state->function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    blas.products.push_back(std::move(product));
    return code == 0 ? int{kSuccess} : int{kExecutionFailed};
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
