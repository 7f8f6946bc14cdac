// The reference backend: plain loops that sum in double. The oracle of all others.
#pragma once

#include <memory>

#include "ridge/backend/backend.h"
#include "ridge/backend/host.h"

namespace ridge {

std::unique_ptr<Backend> make_ref_backend(StreamMode mode = StreamMode::kInline);

}  // namespace ridge
