// The library: a trained model, loaded and run. This is the one header to include; the link is to
// libridge.so (ridge::ridge in CMake). Both need C++20 and its standard library, nothing else.
//
//   ridge::Session session("resnet50.onnx");
//   const std::vector<float> pixels(1 * 3 * 224 * 224);
//   const auto outputs = session.run({{"x", {pixels, {1, 3, 224, 224}}}});
//   const std::span<const float> scores = outputs.at("logits").values<float>();
//
// Errors of input and environment are ridge::UserError, with one thing to do about them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/api/data_spec.h"
#include "ridge/api/dtype.h"
#include "ridge/api/error.h"

namespace ridge {

/// The version of the library that runs, such as "0.1.0".
const char* version();

/// Threads that a run uses, the caller included; they serve all sessions of the process. At first
/// as many as there are CPUs that the process may use, or RIDGE_THREADS says.
int num_threads();
/// Sets that number, from 1 to 1024, else UserError; waits for runs to end. Results have the same
/// bits for any number.
void set_num_threads(int count);

/// An array in memory of the caller: row-major, without gaps, at any address. It is only read, and
/// has to stay as it is while a call uses it. On the CPU kernels read it where it lies, unless its
/// address is no multiple of its elements' size: then it is copied.
struct ArrayView {
  ArrayView(DType of, std::vector<int64_t> sizes, const void* first, size_t length)
      : dtype(of), shape(std::move(sizes)), data(first), bytes(length) {}
  template <typename T>
  ArrayView(std::span<const T> elements, std::vector<int64_t> sizes)
      : ArrayView(dtype_of<T>(), std::move(sizes), elements.data(), elements.size_bytes()) {}
  template <typename T>
  ArrayView(const std::vector<T>& elements, std::vector<int64_t> sizes)
      : ArrayView(std::span<const T>(elements), std::move(sizes)) {}

  DType dtype;
  std::vector<int64_t> shape;  ///< Outermost first; empty for a scalar.
  const void* data;
  size_t bytes;  ///< The memory's; a run refuses another number than dtype and shape have.
};

/// An array that the library made. Copies share its memory, which the last one frees.
struct Array {
  size_t elements() const {
    size_t product = 1;
    for (const int64_t size : shape) product *= static_cast<size_t>(size);
    return product;
  }
  size_t bytes() const { return elements() * size_of(dtype); }
  /// The elements in row-major order. UserError unless T stores the dtype; 16-bit floats, for which
  /// C++20 has no type, are read through `data`, or as a class of yours with a kDType.
  template <typename T>
  std::span<T> values() const {
    if (dtype_of<T>() != dtype)
      throw UserError("an array of " + std::string(name_of(dtype)) + " was read as " +
                          std::string(name_of(dtype_of<T>())),
                      "read it as the C++ type of its dtype");
    return {static_cast<T*>(data.get()), elements()};
  }
  /// An output may be the input of another run.
  operator ArrayView() const { return {dtype, shape, data.get(), bytes()}; }

  DType dtype = DType::kF32;
  std::vector<int64_t> shape = {};  ///< Outermost first; empty for a scalar.
  std::shared_ptr<void> data = {};  ///< Row-major, without gaps, at a multiple of 64 bytes.
};

struct SessionOptions {
  /// "cpu", "cuda" or "cuda:N" (GPU number N); empty: as the model's configuration says, for an
  /// ONNX model "cpu".
  std::string device = {};
  /// A checkpoint or a safetensors file; empty: those of the model, or of a run the best
  /// checkpoint, else its newest. An ONNX model has its own.
  std::string weights = {};
  /// Bindings (sizes of named dimensions) that are kept compiled: those used last. At least 1.
  size_t bindings = 16;
  /// Threads that run one binding at once, each in memory of its own; others wait. 0: as many as
  /// num_threads(), or the recipe's instances.
  size_t programs = 0;
  /// A recipe that `ridge optimize` made for this model: its precision, kernels and passes are the
  /// session's; its threads and their pinning are set for the process. Batch and instances are for
  /// the caller to have. Empty: none.
  std::string recipe = {};
};

/// A model with its weights. Any thread may call any function at any time, but for moving and
/// destroying it.
///
/// After a fork it serves the child too, on the CPU, if no session was in a call at the fork;
/// otherwise, and on a GPU, calls of the child throw UserError.
class Session {
 public:
  /// Loads a model: NAME.onnx, a configuration of Ridge (TOML), the folder of a run or of a
  /// checkpoint, or a folder that transformers saved a GPT-2 in. Files of weights are mapped where
  /// they can be, and must not be written while the session lives. UserError where a file is
  /// missing, broken or asks for something that Ridge has not, or the device cannot be opened.
  explicit Session(const std::string& path, const SessionOptions& options = {});
  /// No thread runs it any more. Arrays that it returned stay.
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// The arrays that run() takes and returns, in the model's order.
  const std::vector<DataSpec>& inputs() const;
  const std::vector<DataSpec>& outputs() const;

  /// Compiles for these sizes of the inputs' named dimensions, where that was not done yet, and
  /// takes the memory: the first run of these sizes is then as fast as any. UserError when a
  /// dimension is missing, unknown or out of range; OutOfMemory where memory is short.
  void bind(const Binding& sizes);

  /// The outputs by name, for one array an input. Shapes give the named dimensions their sizes; new
  /// sizes are compiled. UserError that says what the model takes when a name, a dtype or a shape
  /// is not right, or for wrong data (an index out of range), with the place in the model;
  /// OutOfMemory where memory is short. After an error the next call is as any other. The bits of
  /// results do not depend on the number of threads, nor on what else runs.
  std::map<std::string, Array> run(const std::map<std::string, ArrayView>& inputs);

 private:
  struct Loaded;
  std::unique_ptr<Loaded> loaded_;
};

/// The whole program `ridge`, for a main() that does nothing else: runs the command line and
/// returns the exit code. It changes how the process takes signals, writes to stdout and stderr,
/// and starts /proc/self/exe for further processes.
int run_program(int argc, char** argv);

}  // namespace ridge
