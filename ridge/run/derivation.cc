#include "ridge/run/derivation.h"

#include <algorithm>

#include "ridge/base/cpu/file_pages.h"
#include "ridge/base/trace/trace.h"

namespace ridge {

Derivation::Derivation(const DerivationPlan& plan, Backend& backend)
    : plan_(plan),
      launches_(*plan.graph, plan.entry, backend),
      trace_name_(intern_trace_name(plan.entry.name)) {}

void Derivation::bind(const State& state,
                      const std::vector<std::shared_ptr<StateBuffer>>& buffers) {
  state_ = &state;
  made_ = buffers[plan_.slot].get();
  for (const size_t source : plan_.sources) sources_.push_back(buffers[source]);
}

bool Derivation::is_stale() const {
  const std::vector<uint64_t>& made_from = made_->made_from;
  const auto is_same = [](const auto& source, uint64_t version) {
    return source->version == version;
  };
  return !std::equal(sources_.begin(), sources_.end(), made_from.begin(), made_from.end(), is_same);
}

void Derivation::make(Stream& stream, FunctionRef<void*(const Place&)> address) {
  ++made_->version;
  made_->made_from.clear();
  if (plan_.kernel != nullptr)
    run_kernel(stream);
  else
    run_launches(stream, address);
  for (const auto& source : sources_) made_->made_from.push_back(source->version);
}

void Derivation::run_launches(Stream& stream, FunctionRef<void*(const Place&)> address) {
  std::vector<ConstantUse> uses;
  for (const auto& source : sources_)
    if (source->entry.constant != nullptr) uses.emplace_back(*state_, source);
  launches_.bind(address);
  try {
    launches_.queue(stream);
  } catch (...) {
    try {
      stream.synchronize();  // what is queued already uses memory that the caller takes back
    } catch (...) {          // the first error is reported
    }
    throw;
  }
  stream.synchronize();
}

void Derivation::run_kernel(Stream& stream) {
  const TraceScope scope(trace_name_, "cpu_op");
  const StateBuffer& source = *sources_.at(0);
  const StateConstant* const constant = source.entry.constant.get();
  const void* const from = constant == nullptr ? source.data : constant->bytes.data();
  void* const to = made_->data;
  plan_.kernel->launch(stream, {{&from, 1}, {&to, 1}});
  stream.synchronize();
  // They come again where somebody else reads them.
  if (constant != nullptr) release_file_pages(from, constant->bytes.size());
}

}  // namespace ridge
