#include "ridge/backend/cuda/driver/library_search.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

namespace ridge::cuda {
namespace {

// Searches a Python environment, where a wheel's folder is named after the library or after its
// version of CUDA.
void add_wheels(const std::filesystem::path& environment,
                const std::vector<const char*>& files,
                std::vector<std::string>& places) {
  std::error_code ignored;
  for (const auto& python : std::filesystem::directory_iterator(environment / "lib", ignored)) {
    const auto wheels = python.path() / "site-packages" / "nvidia";
    for (const auto& wheel : std::filesystem::directory_iterator(wheels, ignored))
      for (const char* file : files)
        if (const auto path = wheel.path() / "lib" / file; std::filesystem::exists(path, ignored))
          places.push_back(path.string());
  }
}

std::vector<std::string> places_to_look(const LibrarySearch& search) {
  if (const char* named = std::getenv(search.variable); named != nullptr && *named != '\0')
    return {named};
  std::vector<std::string> places;
  for (const char* file : search.files) {
    places.emplace_back(file);
    for (const char* folder : search.folders) places.push_back(fmt::format("{}/{}", folder, file));
  }
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment != nullptr)
    add_wheels(environment, search.files, places);
  return places;
}

// The loader says the same of a file that is missing and of one that needs another that is; but it
// begins with the name of the one that it misses.
bool is_missing(const std::string& place, const std::string& reason) {
  return reason.starts_with(place + ": ") &&
         reason.find("No such file or directory") != std::string::npos;
}

}  // namespace

std::string newer_than_driver(const std::string& path, size_t major, int driver) {
  if (std::cmp_less_equal(major, driver / 1000)) return {};
  return fmt::format(
      "{} is of CUDA {}, whose kernels NVIDIA's driver, which is for CUDA {}.{}, "
      "cannot load",
      path,
      major,
      driver / 1000,
      driver % 1000 / 10);
}

OpenedLibrary open_library(const LibrarySearch& search,
                           const std::function<std::string(const OpenedLibrary&)>& refuse) {
  const std::vector<std::string> places = places_to_look(search);
  std::string missing, unfit;  // the last reason of each kind
  for (const std::string& place : places) {
    const OpenedLibrary library{::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL), place};
    std::string why;
    if (library.handle == nullptr) {
      const char* const reason = ::dlerror();
      why = reason == nullptr ? "no reason is given" : reason;
      if (is_missing(place, why)) {
        missing = std::move(why);
        continue;
      }
    } else {
      why = refuse(library);
      if (why.empty()) return library;
    }
    unfit = std::move(why);
  }
  const auto text = [&](const std::string& why) {
    return fmt::format("{}: {}; looked for {}", search.failed, why, fmt::join(places, ", "));
  };
  if (unfit.empty()) throw LibraryMissing(text(missing), search.fix);
  throw UserError(text(unfit), search.fix);
}

}  // namespace ridge::cuda
