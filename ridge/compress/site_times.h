// Times of the sites of a model, kernel against kernel, on this machine.
#pragma once

#include <map>
#include <string>

#include "ridge/compress/form.h"

namespace ridge::compress {

/// Seconds of one run of a site on one sample, with the conversions that its neighbours ask for: an
/// activation that reaches the site as bytes becomes floats before it runs as it is, and one that
/// reaches it as floats becomes bytes before it runs in bytes; its result likewise.
struct SiteTime {
  double as_it_is = 0, in_bytes = 0;

  double gain() const { return as_it_is - in_bytes; }
};

/// The times of all sites of `form`, by output, each the least of several runs that alternate;
/// sites of one shape are timed once. `types` has those of their inputs and outputs. The neighbours
/// of a site are taken to be in bytes where that can be: where all sites were.
std::map<std::string, SiteTime> time_sites(const EditableModel& model,
                                           const QuantizedForm& form,
                                           const std::map<std::string, TensorType>& types);

/// The same of two whole models on one sample.
SiteTime time_models(const EditableModel& as_it_is,
                     const EditableModel& in_bytes,
                     const NamedTensors& sample);

}  // namespace ridge::compress
