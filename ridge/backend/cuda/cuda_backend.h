// Ridge's contract with a device, on a GPU of NVIDIA.
//
// The choices of a node are a copy or a fill of the driver, where the node is no more than that;
// else algorithms of cuBLASLt, plans of cuDNN, and printed kernels, in this order; and for a fused
// node its ops one by one. A node without a choice is lowered by a pass (lower_unsupported). All
// that is known of a node is kept by its signature(), which holds no site, because plans ask often.
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

/// What the device can do, by the backend's own kernels and copies.
Calibration calibrate(Backend& backend, const DeviceRef& device);

}  // namespace ridge::cuda
