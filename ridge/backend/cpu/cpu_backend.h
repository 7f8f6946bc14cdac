// Ridge's own kernels for x86 CPUs, by instruction set at run time.
#pragma once

#include <memory>

#include "ridge/backend/backend.h"
#include "ridge/backend/host.h"

namespace ridge {

/// UserError on a CPU without AVX2 and FMA.
std::unique_ptr<Backend> make_cpu_backend(StreamMode mode = StreamMode::kInline);

}  // namespace ridge
