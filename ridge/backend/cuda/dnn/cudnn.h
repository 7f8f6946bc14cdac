// NVIDIA's library of convolution and attention, opened at run time: the one place where its
// functions are found and its errors become ours.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/backend/cuda/dnn/cudnn_api.h"
#include "ridge/backend/cuda/driver/device.h"
#include "ridge/backend/cuda/driver/library_search.h"
#include "ridge/base/error.h"

namespace ridge::cuda {

/// A call of the library that failed.
class DnnError : public UserError {
 public:
  DnnError(const std::string& message, std::string fix, std::string call, DnnResult result)
      : UserError(message, std::move(fix)), call_(std::move(call)), result_(result) {}
  const std::string& call() const { return call_; }
  DnnResult result() const { return result_; }
  /// True where it says that it cannot do what it was asked for, and nothing is broken.
  bool is_refusal() const { return kind() == 3 || result_ == DnnResult::kCompilationFailed; }
  /// True of a planning call after which the library is as it was, though it did not say why it
  /// fails: the graph is a bad parameter to this version, or it failed inside or had no memory.
  bool is_failed_plan() const { return !is_refusal() && (kind() == 2 || kind() == 4); }

 private:
  int kind() const { return static_cast<int>(result_) / 1000; }

  std::string call_;
  DnnResult result_;
};

/// How a call ended.
struct [[nodiscard]] DnnStatus {
  const char* call;
  DnnResult result;
  bool ok() const { return result == DnnResult::kSuccess; }
};

/// One function of the library, which takes `Args` and returns a DnnResult.
template <typename... Args>
class DnnCall {
 public:
  explicit DnnCall(const char* name) : name_(name) {}
  bool find_in(const OpenedLibrary& library) { return library.find(function_, name_); }
  DnnStatus operator()(Args... args) const { return {name_, function_(args...)}; }
  const char* name() const { return name_; }

 private:
  const char* name_;
  DnnResult (*function_)(Args...) = nullptr;
};

/// The functions that Ridge calls.
struct DnnLibrary {
  /// The library that $RIDGE_CUDNN names; else libcudnn.so.9 from where library_search.h looks.
  /// UserError when there is none, it lacks a function, or the driver, of that version of CUDA,
  /// does not run its kernels.
  static std::shared_ptr<const DnnLibrary> open(int driver = kAnyDriver);

  /// Throws DnnError unless the call succeeded. The text says with what it was called; it is made
  /// only then.
  template <typename... Args>
  void check(DnnStatus status, fmt::format_string<Args...> with, Args&&... args) const {
    if (!status.ok()) [[unlikely]]
      fail(status, fmt::format(with, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail(DnnStatus status, const std::string& with) const;

  std::string path;
  size_t version = 0;        ///< 10000 * major + 100 * minor + patch.
  std::string version_text;  ///< "9.28.1".

  DnnCall<DnnHandle*> create{"cudnnCreate"};
  DnnCall<DnnHandle> destroy{"cudnnDestroy"};
  DnnCall<DnnHandle, StreamHandle> set_stream{"cudnnSetStream"};
  DnnCall<DnnKind, DnnDescriptorHandle*> descriptor_create{"cudnnBackendCreateDescriptor"};
  DnnCall<DnnDescriptorHandle> descriptor_destroy{"cudnnBackendDestroyDescriptor"};
  DnnCall<DnnDescriptorHandle> finalize{"cudnnBackendFinalize"};
  DnnCall<DnnDescriptorHandle, DnnAttribute, DnnType, int64_t, const void*> set{
      "cudnnBackendSetAttribute"};
  DnnCall<DnnDescriptorHandle, DnnAttribute, DnnType, int64_t, int64_t*, void*> get{
      "cudnnBackendGetAttribute"};
  DnnCall<DnnHandle, DnnDescriptorHandle, DnnDescriptorHandle> execute{"cudnnBackendExecute"};

 private:
  size_t (*version_)() = nullptr;
  size_t (*cuda_version_)() = nullptr;  // 1000 * major + 10 * minor, of CUDA
  const char* (*status_name_)(DnnResult) = nullptr;
  void (*last_error_)(char*, size_t) = nullptr;

  /// The name of a function that it lacks; empty: none.
  std::string find_all(const OpenedLibrary& from);
};

using DnnLibraryRef = std::shared_ptr<const DnnLibrary>;

/// The type that the library knows values of T by.
template <typename T>
inline constexpr DnnType kDnnTypeOf = T::unknown_to_cudnn;
template <>
inline constexpr DnnType kDnnTypeOf<DnnHandle> = DnnType::kHandle;
template <>
inline constexpr DnnType kDnnTypeOf<DnnDataType> = DnnType::kDataType;
template <>
inline constexpr DnnType kDnnTypeOf<bool> = DnnType::kBoolean;
template <>
inline constexpr DnnType kDnnTypeOf<int64_t> = DnnType::kInt64;
template <>
inline constexpr DnnType kDnnTypeOf<float> = DnnType::kFloat;
template <>
inline constexpr DnnType kDnnTypeOf<void*> = DnnType::kPointer;
template <>
inline constexpr DnnType kDnnTypeOf<DnnConvolutionMode> = DnnType::kConvolutionMode;
template <>
inline constexpr DnnType kDnnTypeOf<DnnHeuristicMode> = DnnType::kHeuristicMode;
template <>
inline constexpr DnnType kDnnTypeOf<DnnKnob> = DnnType::kKnobType;
template <>
inline constexpr DnnType kDnnTypeOf<DnnNumericalNote> = DnnType::kNumericalNote;
template <>
inline constexpr DnnType kDnnTypeOf<DnnPointwiseMode> = DnnType::kPointwiseMode;
template <>
inline constexpr DnnType kDnnTypeOf<DnnReduction> = DnnType::kReductionOperator;
template <>
inline constexpr DnnType kDnnTypeOf<DnnDescriptorHandle> = DnnType::kDescriptor;
template <>
inline constexpr DnnType kDnnTypeOf<DnnBehaviorNote> = DnnType::kBehaviorNote;
template <>
inline constexpr DnnType kDnnTypeOf<char> = DnnType::kChar;

/// A descriptor of the library, which destroys itself. Objects that it is set to hold must live as
/// long as it does. All calls: DnnError.
class DnnDescriptor {
 public:
  DnnDescriptor(DnnLibraryRef library, DnnKind kind);
  DnnDescriptor(DnnDescriptor&& other) noexcept
      : library_(std::move(other.library_)), handle_(std::exchange(other.handle_, nullptr)) {}
  DnnDescriptor& operator=(DnnDescriptor&&) = delete;
  ~DnnDescriptor();

  DnnDescriptorHandle handle() const { return handle_; }

  template <typename T>
  void set_all(DnnAttribute attribute, std::span<const T> values) {
    set_raw(attribute, kDnnTypeOf<T>, values.size(), values.data());
  }
  template <typename T>
  void set(DnnAttribute attribute, const T& value) {
    set_raw(attribute, kDnnTypeOf<T>, 1, &value);
  }
  void set(DnnAttribute attribute, const DnnDescriptor& value) { set(attribute, value.handle_); }
  void set(DnnAttribute attribute, const std::vector<int64_t>& values) {
    set_all(attribute, std::span<const int64_t>(values));
  }
  /// Ends the writing of attributes: from now on they can be read alone.
  void finalize();

  /// Up to `most` values.
  template <typename T>
  std::vector<T> get_all(DnnAttribute attribute, size_t most) const {
    std::vector<T> values(most);
    values.resize(get_raw(attribute, kDnnTypeOf<T>, most, values.data()));
    return values;
  }
  /// The one value that there is; InternalError for none.
  template <typename T>
  T get(DnnAttribute attribute) const {
    T value{};
    const size_t count = get_raw(attribute, kDnnTypeOf<T>, 1, &value);
    check_internal(count == 1, "attribute {} has {} values", static_cast<int>(attribute), count);
    return value;
  }
  /// One descriptor, which was made and is filled.
  void fill(DnnAttribute attribute, const DnnDescriptor& value) const;
  /// Descriptors of `kind`, up to `most`.
  std::vector<DnnDescriptor> get_descriptors(DnnAttribute attribute,
                                             DnnKind kind,
                                             size_t most) const;
  /// How many there are; 0 for knobs, which the library does not count.
  size_t count_descriptors(DnnAttribute attribute) const;

 private:
  void set_raw(DnnAttribute attribute, DnnType type, size_t count, const void* values);
  size_t get_raw(DnnAttribute attribute, DnnType type, size_t most, void* values) const;

  DnnLibraryRef library_;
  DnnDescriptorHandle handle_ = nullptr;
};

/// The library's state on a device: what it needs there is made here, and nothing in a launch.
class Dnn {
 public:
  /// DnnError when the library cannot run on it.
  Dnn(DeviceRef device, DnnLibraryRef library);
  /// Opens the library for a device that is not here, described as the library writes it (JSON):
  /// plans can be made, and none run.
  Dnn(DnnLibraryRef library, std::string_view properties);
  /// After all work that was queued with it.
  ~Dnn();
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;

  /// The same library with a handle of its own, for a handle serves one thread at a time. DnnError.
  std::shared_ptr<const Dnn> for_another_thread() const;

  const DnnLibraryRef& library() const { return library_; }
  void ensure_current() const;

  DnnDescriptor make(DnnKind kind) const { return {library_, kind}; }
  /// Says for which device a descriptor is meant, where it has an attribute for that.
  void aim(DnnDescriptor& descriptor,
           std::optional<DnnAttribute> by_handle,
           std::optional<DnnAttribute> by_properties) const;
  /// Queues a plan with what a variant pack says. Of several threads, one goes after the other.
  void execute(const DnnDescriptor& plan,
               const DnnDescriptor& pack,
               StreamHandle stream,
               const std::string& what) const;

 private:
  DeviceRef device_;  // null: properties_ alone
  DnnLibraryRef library_;
  DnnHandle handle_ = nullptr;
  std::string properties_text_;  // the text that properties_ was made from
  std::unique_ptr<DnnDescriptor> properties_;
  // The handle has a stream: whoever sets it launches before anybody else does.
  mutable std::mutex launch_mutex_;
  mutable StreamHandle stream_ = nullptr;
};

}  // namespace ridge::cuda
