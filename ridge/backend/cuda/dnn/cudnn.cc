#include "ridge/backend/cuda/dnn/cudnn.h"

#include <algorithm>
#include <array>

#include "ridge/base/html/markup.h"

namespace ridge::cuda {
namespace {

constexpr size_t kMostText = 300;  // bytes of the library's text that an error holds

// One thing to do, where there is one.
std::string fix_of(DnnResult result) {
  switch (result) {
    case DnnResult::kDeviceAllocationFailed:
      return "see with nvidia-smi who holds the GPU's memory, or make train.batch smaller";
    case DnnResult::kNotInitialized:
    case DnnResult::kSublibraryVersionMismatch:
    case DnnResult::kSublibraryLoadingFailed:
    case DnnResult::kArchMismatch:
      return "install one cuDNN 9 for the CUDA version that nvidia-smi shows and name its "
             "libcudnn.so.9 in RIDGE_CUDNN, or set RIDGE_CUDNN=none";
    default:
      return static_cast<int>(result) / 1000 == 5
                 ? "start again from the last checkpoint (--resume auto)"
                 : "set RIDGE_CUDNN=none: kernels of Ridge take its place";
  }
}

}  // namespace

std::shared_ptr<const DnnLibrary> DnnLibrary::open(int driver) {
  auto made = std::make_shared<DnnLibrary>();
  const OpenedLibrary library = open_library(
      {.variable = "RIDGE_CUDNN",
       .files = {"libcudnn.so.9"},
       .failed = "[cudnn] cannot open the library of convolution and attention",
       .fix = by_driver(driver,
                        "install it by `pip install nvidia-cudnn-cu13` and name its libcudnn.so.9 "
                        "in RIDGE_CUDNN",
                        "install one for this driver by `pip install nvidia-cudnn-cu12` and name "
                        "its libcudnn.so.9 in RIDGE_CUDNN")},
      [&](const OpenedLibrary& opened) {
        const std::string missing = made->find_all(opened);
        return missing.empty()
                   ? newer_than_driver(opened.path, made->cuda_version_() / 1000, driver)
                   : fmt::format("{} is no cuDNN 9: it has no {}", opened.path, missing);
      });
  made->path = library.path;
  made->version = made->version_();
  made->version_text = fmt::format(
      "{}.{}.{}", made->version / 10000, made->version / 100 % 100, made->version % 100);
  return made;
}

std::string DnnLibrary::find_all(const OpenedLibrary& from) {
  return find_functions(from,
                        create,
                        destroy,
                        set_stream,
                        descriptor_create,
                        descriptor_destroy,
                        finalize,
                        set,
                        get,
                        execute,
                        NamedFunction(version_, "cudnnGetVersion"),
                        NamedFunction(cuda_version_, "cudnnGetCudartVersion"),
                        NamedFunction(status_name_, "cudnnGetErrorString"),
                        NamedFunction(last_error_, "cudnnGetLastErrorString"));
}

void DnnLibrary::fail(DnnStatus status, const std::string& with) const {
  const char* const name = status_name_(status.result);
  std::array<char, kMostText + 1> text{};
  last_error_(text.data(), text.size());
  text.back() = '\0';
  std::string error = name == nullptr ? fmt::format("error {}", static_cast<int>(status.result))
                                      : shortened(name, kMostText);
  if (text.front() != '\0')
    error = fmt::format("{} ({})", shortened(text.data(), kMostText), error);
  throw DnnError(fmt::format("cuDNN {}: {}{} failed: {}",
                             version_text,
                             status.call,
                             with.empty() ? std::string{} : fmt::format("({})", with),
                             error),
                 fix_of(status.result),
                 status.call,
                 status.result);
}

// ---- descriptors ----

DnnDescriptor::DnnDescriptor(DnnLibraryRef library, DnnKind kind) : library_(std::move(library)) {
  library_->check(
      library_->descriptor_create(kind, &handle_), "descriptor {}", static_cast<int>(kind));
}

DnnDescriptor::~DnnDescriptor() {
  // It is gone either way, and a destructor cannot report an error.
  if (handle_ != nullptr) static_cast<void>(library_->descriptor_destroy(handle_));
}

void DnnDescriptor::set_raw(DnnAttribute attribute,
                            DnnType type,
                            size_t count,
                            const void* values) {
  library_->check(library_->set(handle_, attribute, type, static_cast<int64_t>(count), values),
                  "attribute {}",
                  static_cast<int>(attribute));
}

size_t DnnDescriptor::get_raw(DnnAttribute attribute,
                              DnnType type,
                              size_t most,
                              void* values) const {
  int64_t count = 0;
  library_->check(
      library_->get(handle_, attribute, type, static_cast<int64_t>(most), &count, values),
      "attribute {}",
      static_cast<int>(attribute));
  // It counts what there is, which may be more than fitted.
  return std::min(most, static_cast<size_t>(std::max<int64_t>(count, 0)));
}

void DnnDescriptor::finalize() { library_->check(library_->finalize(handle_), ""); }

void DnnDescriptor::fill(DnnAttribute attribute, const DnnDescriptor& value) const {
  DnnDescriptorHandle handle = value.handle_;
  const size_t count = get_raw(attribute, DnnType::kDescriptor, 1, &handle);
  check_internal(count == 1, "attribute {} has {} values", static_cast<int>(attribute), count);
}

size_t DnnDescriptor::count_descriptors(DnnAttribute attribute) const {
  int64_t count = 0;
  library_->check(library_->get(handle_, attribute, DnnType::kDescriptor, 0, &count, nullptr),
                  "attribute {}",
                  static_cast<int>(attribute));
  return static_cast<size_t>(std::max<int64_t>(count, 0));
}

std::vector<DnnDescriptor> DnnDescriptor::get_descriptors(DnnAttribute attribute,
                                                          DnnKind kind,
                                                          size_t most) const {
  // The library fills what was made before.
  std::vector<DnnDescriptor> made;
  std::vector<DnnDescriptorHandle> handles;
  for (size_t i = 0; i < most; ++i) {
    made.emplace_back(library_, kind);
    handles.push_back(made.back().handle());
  }
  if (made.empty()) return made;
  const size_t filled = get_raw(attribute, DnnType::kDescriptor, made.size(), handles.data());
  while (made.size() > filled) made.pop_back();
  return made;
}

// ---- the device ----

Dnn::Dnn(DeviceRef device, DnnLibraryRef library)
    : device_(std::move(device)), library_(std::move(library)) {
  device_->ensure_current();
  library_->check(library_->create(&handle_), "{}", device_->facts().name);
}

Dnn::Dnn(DnnLibraryRef library, std::string_view properties)
    : library_(std::move(library)), properties_text_(properties) {
  properties_ = std::make_unique<DnnDescriptor>(library_, DnnKind::kDeviceProperties);
  // The library wants the zero behind the text, too.
  properties_->set_all(
      DnnAttribute::kDevicePropertiesJson,
      std::span<const char>(properties_text_.c_str(), properties_text_.size() + 1));
  properties_->finalize();
}

std::shared_ptr<const Dnn> Dnn::for_another_thread() const {
  if (device_ != nullptr) return std::make_shared<const Dnn>(device_, library_);
  return std::make_shared<const Dnn>(library_, properties_text_);
}

Dnn::~Dnn() {
  if (device_ == nullptr) return;
  device_->make_current_quietly();
  device_->wait_quietly();
  static_cast<void>(library_->destroy(handle_));
}

void Dnn::ensure_current() const {
  if (device_ != nullptr) device_->ensure_current();
}

void Dnn::aim(DnnDescriptor& descriptor,
              std::optional<DnnAttribute> by_handle,
              std::optional<DnnAttribute> by_properties) const {
  if (properties_ == nullptr && by_handle) descriptor.set(*by_handle, handle_);
  if (properties_ != nullptr && by_properties) descriptor.set(*by_properties, *properties_);
}

void Dnn::execute(const DnnDescriptor& plan,
                  const DnnDescriptor& pack,
                  StreamHandle stream,
                  const std::string& what) const {
  check_internal(device_ != nullptr, "{} on a device that is not here", what);
  const std::lock_guard lock(launch_mutex_);
  if (stream != stream_) {
    library_->check(library_->set_stream(handle_, stream), "{}", what);
    stream_ = stream;
  }
  library_->check(library_->execute(handle_, plan.handle(), pack.handle()), "{}", what);
}

}  // namespace ridge::cuda
