// Measures the rates of a GPU by its own clock.
#pragma once

#include <cstdint>
#include <functional>

#include "ridge/backend/backend.h"
#include "ridge/backend/cuda/driver/stream.h"

namespace ridge::cuda {

/// Makes ready a product of two square matrices of `edge` rows: what it returns queues one on the
/// stream that is measured. Null where there is no kernel. The matrices hold random numbers: on
/// zeros a GPU takes less power, and is faster than on any data. What it returns keeps all that it
/// needs.
using MakeProduct = std::function<std::function<void()>(DType dtype, int64_t edge)>;

/// Peak of products of each dtype, bandwidth of copies on the device and to and from the host, and
/// what a launch and a node of a captured graph cost, all on `stream`; in about two seconds.
/// CudaError where a call fails; what was allocated is freed. Of other programs' work on the device
/// it knows nothing: each number is the best of a few.
/// A size of products that keeps the host waiting for more than `most_wait_s`, as on a device that
/// others use, is the last one.
Calibration measure_device(Stream& stream,
                           const MakeProduct& make_product,
                           double most_wait_s = 0.1);

}  // namespace ridge::cuda
