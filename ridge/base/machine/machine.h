// One text of all that measurements depend on, and the folder where they are kept.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ridge {

/// The folder that keeps measurements: $XDG_CACHE_HOME/ridge or ~/.cache/ridge; empty when there is
/// no such place.
std::filesystem::path cache_folder();

/// Model and features of the processor, as one text.
std::string processor_text();

/// All that a measurement on `device` depends on, as one text: device, processor and features,
/// CPUs, threads, version of Ridge.
std::string machine_fingerprint(std::string_view device);

}  // namespace ridge
