// `ridge calibrate`: what this machine can do, measured once and kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/base/machine/machine.h"

namespace ridge {

struct CalibrateOptions {
  std::string device = "cpu";
  std::string threads;  ///< The number, as --threads gives it; empty: what is set.
  bool fresh = false;
  bool json = false;
};

/// A calibration and where it comes from.
struct KeptCalibration {
  Calibration values;
  int64_t measured_at = 0;  ///< Seconds since 1970 UTC.
  bool from_cache = false;
  std::filesystem::path file;  ///< File in which it is kept; empty: it is not kept.
  std::string note;            ///< Why the cache did not serve; empty: it did, or there was none.
};

/// A number of a calibration that only devices have which the host does not share: else 0, and
/// neither printed nor kept.
struct DeviceNumber {
  std::string_view label, key;  ///< In the text, and in JSON.
  double* value;
  bool is_time = false;  ///< Seconds, else bytes a second.
};
std::vector<DeviceNumber> device_numbers(Calibration& values);

/// The calibration of `fingerprint` kept in `folder`, or else, or when `fresh`, that which
/// `measure` gives, and keeps it there. A file that is damaged or cannot be written never is an
/// error.
KeptCalibration kept_calibration(const std::filesystem::path& folder,
                                 const std::string& fingerprint,
                                 bool fresh,
                                 const std::function<Calibration()>& measure);

/// The report, as text or as one JSON object ("ridge.calibrate/1"). UserError for an unknown
/// device.
std::string calibrate(const CalibrateOptions& options);

}  // namespace ridge
