// The loading of data, as far as a trace shows it.
#pragma once

#include <string>

#include "ridge/doctor/findings/finding.h"

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

/// Finding::semantic_class of more workers. Ridge's own keep the bits; for another program that
/// nobody watched the worst class is taken.
SemanticClass class_of_workers(const Trace& trace, const LoadedBatches& batches);

/// The class in words, to end a sentence with; empty where the bits stay.
std::string class_words_of_workers(const Trace& trace, const LoadedBatches& batches);

/// Whether a batch is made in about the time in which it is handed from one process to another:
/// workers then take over less than they cost.
bool is_cheap(const LoadedBatches& batches);

/// The fix for batches that are made on the thread that trains.
std::string fix_of_same_thread(const Trace& trace,
                               const LoadedBatches& batches,
                               bool is_less_work_first);

/// Whether a span of this name makes a batch: samples are read, decoded, collated.
bool is_producer_span(std::string_view name);

}  // namespace ridge::doctor
