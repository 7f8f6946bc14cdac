// What a trace shows of the loading of data.
#pragma once

#include <string>

#include "ridge/doctor/finding.h"

namespace ridge::doctor {

/// How batches are made, by the names of the spans that wait for them.
enum class LoaderForm {
  kUnknown,
  kSameThread,  ///< On the thread that trains.
  kWorkers,     ///< By threads or processes of its own.
};

struct LoaderTime {
  Intervals starved;       ///< No kernel computes since no data has come.
  double starved_ms = 0;   ///< A usual step: one slow one of many does not count.
  double mean_ms = 0;      ///< A step.
  double producer_ms = 0;  ///< A step, over all threads that the trace shows making batches.
  size_t producers = 0;    ///< Such threads.
  LoaderForm form = LoaderForm::kUnknown;
  std::vector<size_t> waits{};  ///< Rows of the longest waits within steps, at most 3.
};

LoaderTime loader_time(const Trace& trace, const Analysis& analysis);

/// Whether a span of this name makes a batch: samples are read, decoded, collated.
bool is_producer_span(std::string_view name);

}  // namespace ridge::doctor
