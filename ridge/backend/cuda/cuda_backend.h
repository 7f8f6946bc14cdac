// Ridge's contract with a device, on a GPU of NVIDIA.
#pragma once

#include <filesystem>
#include <memory>

#include "ridge/backend/backend.h"
#include "ridge/backend/cuda/blas/cublaslt.h"
#include "ridge/backend/cuda/dnn/cudnn.h"
#include "ridge/backend/cuda/driver/device.h"
#include "ridge/backend/cuda/driver/nvrtc.h"

namespace ridge::cuda {

/// Libraries that the backend calls.
struct Libraries {
  std::shared_ptr<const Nvrtc> compiler;
  std::shared_ptr<const Blas> blas = nullptr;  ///< Null: products are printed kernels, slow ones.
  std::shared_ptr<const Dnn> dnn = nullptr;    ///< Null: convolutions are products.
};

/// The backend of a GPU. Kernels are compiled when they are first needed; their cubins are kept in
/// `cubins` from run to run (an empty path: they are not). Nodes that a library fails to plan run
/// without it: `note` hears of the first of each error.
std::unique_ptr<Backend> make_cuda_backend(DeviceRef device,
                                           Libraries libraries,
                                           std::filesystem::path cubins,
                                           NoteListener note = ignore_note);

/// Measures the device's rates with the backend's own kernels and copies.
Calibration calibrate(Backend& backend, const DeviceRef& device);

}  // namespace ridge::cuda
