#include "ridge/run/node_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ridge/base/hash.h"

namespace ridge {
namespace {

constexpr int64_t kRoundNs = 200'000;        // a round runs a kernel again until so much has passed
constexpr int64_t kShortNs = 50'000;         // the host takes some 10 us to launch it and wait
constexpr int64_t kRecorded = 64;            // launches that are recorded of such a one
constexpr int64_t kCandidateNs = 8'000'000;  // time for all rounds of a candidate
constexpr size_t kFewestRounds = 5;
constexpr size_t kMostRounds = 21;

// Elements after which operands repeat themselves: a prime, so rows differ.
constexpr int64_t kPeriod = 4093;

// A result with more bytes is read in so many pieces, which are that large together.
constexpr size_t kMostRead = size_t{2} << 20, kPieces = 64;

// The first elements of operand number `key`, up to where they repeat.
Tensor pattern_of(const TensorType& type, size_t key, bool magnitudes) {
  Tensor pattern({type.dtype, {std::min(type.elements(), kPeriod)}});
  if (!is_float(type.dtype) && type.dtype != DType::kBool) return pattern;
  for (int64_t i = 0; i < pattern.elements(); ++i) {
    const uint64_t word = hash64(fmt::format("{} {}", key, i));
    const double unit = static_cast<double>(word >> 11) * 0x1p-53;
    const double number = type.dtype == DType::kBool ? std::floor(2 * unit) : 2 * unit - 1;
    pattern.set(i, magnitudes ? std::fabs(number) : number);
  }
  return pattern;
}

}  // namespace

NodeBench::NodeBench(const Node& node, Backend& backend, int64_t (*now)())
    : backend_(backend), now_(now), stream_(backend.make_stream()) {
  operand_types_ = node.input_types();
  types_ = node.outputs;
  copies_.push_back(add_places());
  fill(Fill::kSigned);
}

NodeBench::Places NodeBench::add_places() {
  Places made;
  const auto take = [&](const TensorType& type) {
    return memory_.emplace_back(backend_, static_cast<size_t>(type.bytes())).get();
  };
  for (const TensorType& type : operand_types_) made.inputs.push_back(take(type));
  for (const TensorType& type : types_) made.outputs.push_back(take(type));
  return made;
}

// The device doubles what it has of an operand until it has all of it.
void NodeBench::fill(Fill what) {
  for (size_t i = 0; i < operand_types_.size(); ++i) {
    const Tensor pattern = pattern_of(operand_types_[i], i, what == Fill::kMagnitudes);
    auto* const to = static_cast<std::byte*>(operand(i));
    const auto bytes = static_cast<size_t>(operand_types_[i].bytes());
    backend_.copy_to_device(*stream_, to, pattern.data(), pattern.bytes());
    for (size_t done = pattern.bytes(); done < bytes;) {
      const size_t more = std::min(done, bytes - done);
      backend_.copy_on_device(*stream_, to + done, to, more);
      done += more;
    }
    stream_->synchronize();
  }
}

NamedTensors NodeBench::operands() const {
  NamedTensors named;
  for (size_t i = 0; i < operand_types_.size(); ++i) {
    Tensor tensor(operand_types_[i]);
    backend_.copy_to_host(*stream_, tensor.data(), copies_[0].inputs[i], tensor.bytes());
    stream_->synchronize();
    named.emplace(fmt::format("{}", i), std::move(tensor));
  }
  return named;
}

void NodeBench::add(std::unique_ptr<NodeKernel> kernel) {
  const size_t bytes = std::max<size_t>(1, kernel->workspace_bytes());
  if (bytes > workspace_bytes_) {
    workspace_ = DeviceMemory(backend_, bytes);
    workspace_bytes_ = bytes;
  }
  kernels_.push_back(std::move(kernel));
}

void NodeBench::drop_last() { kernels_.pop_back(); }

Tensor NodeBench::read(size_t result) {
  const TensorType& type = types_[result];
  const auto* const from = static_cast<const std::byte*>(copies_[0].outputs[result]);
  const auto bytes = static_cast<size_t>(type.bytes());
  const bool whole = bytes <= kMostRead;
  const size_t element = size_of(type.dtype), pieces = whole ? 1 : kPieces;
  const size_t piece = whole ? bytes : kMostRead / kPieces / element * element;
  Tensor tensor(whole ? type
                      : TensorType{type.dtype, {static_cast<int64_t>(pieces * piece / element)}});
  auto* const to = static_cast<std::byte*>(tensor.data());
  for (size_t i = 0; i < pieces; ++i) {
    const size_t last = (bytes - piece) / element;  // first element of the last piece
    const size_t first = pieces == 1 ? 0 : last * i / (pieces - 1);
    backend_.copy_to_host(*stream_, to + i * piece, from + first * element, piece);
  }
  stream_->synchronize();
  return tensor;
}

NamedTensors NodeBench::results(size_t kernel) {
  for (size_t i = 0; i < types_.size(); ++i)
    backend_.clear(*stream_, copies_[0].outputs[i], static_cast<size_t>(types_[i].bytes()));
  run(kernel);
  NamedTensors named;
  for (size_t i = 0; i < types_.size(); ++i) named.emplace(fmt::format("{}", i), read(i));
  return named;
}

NamedTensors NodeBench::results_of_magnitudes(size_t kernel) {
  fill(Fill::kMagnitudes);
  NamedTensors named = results(kernel);
  fill(Fill::kSigned);
  return named;
}

// So many that what one launch leaves in the cache is gone when its copy comes again.
void NodeBench::add_copies() {
  int64_t bytes = 0;
  for (const auto* types : {&operand_types_, &types_})
    for (const TensorType& type : *types) bytes += type.bytes();
  const int64_t cache = backend_.cache_bytes();
  // Operands far smaller than the cache stay in it during a run of a program too, and larger ones
  // never do.
  if (bytes <= cache / 4 || bytes >= 2 * cache) return;
  try {
    for (int64_t i = (2 * cache - 1) / bytes; i > 0; --i) {
      copies_.push_back(add_places());
      for (size_t k = 0; k < operand_types_.size(); ++k)
        backend_.copy_on_device(*stream_,
                                operand(k, copies_.size() - 1),
                                operand(k),
                                static_cast<size_t>(operand_types_[k].bytes()));
    }
  } catch (const UserError&) {
    // Fewer copies will do where no more fit into free memory.
  }
  stream_->synchronize();
}

void NodeBench::record(size_t kernel) {
  RecordingResult made = backend_.record(*stream_, [&] {
    for (int64_t i = 0; i < kRecorded; ++i) launch(kernel, static_cast<size_t>(i));
  });
  recordings_[kernel] = std::move(made.recording);
}

std::vector<std::vector<double>> NodeBench::time() {
  add_copies();
  recordings_.resize(kernels_.size());
  std::vector<int64_t> ones, repeats;
  for (size_t i = 0; i < kernels_.size(); ++i) {
    run(i);
    ones.push_back(std::max<int64_t>(1, timed(i, 1)));
  }
  // A kernel that comes near the shortest one is compared with it, so it is recorded as well.
  const bool records =
      backend_.can_record() && *std::min_element(ones.begin(), ones.end()) < kShortNs;
  int64_t longest = 1;
  for (size_t i = 0; i < kernels_.size(); ++i) {
    if (records && ones[i] < 2 * kShortNs) record(i);
    if (recordings_[i] != nullptr) {
      timed(i, kRecorded);  // the first time the device is given it
      ones[i] = std::max<int64_t>(1, timed(i, kRecorded) / kRecorded);
    }
    repeats.push_back(std::clamp<int64_t>(kRoundNs / ones[i], 1, 10000));
    longest = std::max(longest, ones[i] * repeats[i]);
  }
  const auto rounds =
      std::clamp(static_cast<size_t>(kCandidateNs / longest), kFewestRounds, kMostRounds);
  std::vector<std::vector<double>> seconds(kernels_.size());
  for (size_t round = 0; round < rounds; ++round)
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const int64_t whole = (repeats[i] + kRecorded - 1) / kRecorded * kRecorded;
      const int64_t launches = recordings_[i] == nullptr ? repeats[i] : whole;
      seconds[i].push_back(static_cast<double>(timed(i, launches)) * 1e-9 /
                           static_cast<double>(launches));
    }
  return seconds;
}

void NodeBench::launch(size_t kernel, size_t copy) {
  const Places& places = copies_[copy % copies_.size()];
  kernels_[kernel]->launch(*stream_, {places.inputs, places.outputs, workspace_.get()});
}

void NodeBench::run(size_t kernel) {
  launch(kernel, 0);
  stream_->synchronize();
}

// The caller passes a multiple of kRecorded as `launches` of a recorded kernel.
int64_t NodeBench::timed(size_t kernel, int64_t launches) {
  const bool is_recorded = recordings_[kernel] != nullptr;
  const int64_t start = now_();
  for (int64_t i = 0; i < launches; i += is_recorded ? kRecorded : 1)
    if (is_recorded)
      recordings_[kernel]->launch(*stream_);
    else
      launch(kernel, static_cast<size_t>(i));
  stream_->synchronize();
  return now_() - start;
}

}  // namespace ridge
