// Speed of convolutions of bytes (u8 by i8 to u8, scaled for each channel) beside that of our own
// convolutions in f32, of ResNet-50's and MobileNetV2's shapes with one image: for both the fastest
// kernel, with weights that are packed beforehand where a session packs them.
#include "ridge/graph/ops/conv_i8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/options.h"
#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/base/stats.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/evaluate.h"

namespace ridge {
namespace {

constexpr int kRepetitions = 9;
constexpr double kSecondsOfRepetition = 0.01;

constexpr const char* kUsage =
    "usage: bench_conv_i8 [--threads N] [--isa auto|avx2|avx512|amx] [--json FILE]\n";

struct Options {
  std::string json;
};

struct Case {
  const char* model;
  int64_t size, in, out, kernel, stride;
  bool is_depthwise;

  int64_t padding() const { return kernel / 2; }
  WindowFields window() const {
    return {.stride = {stride, stride},
            .padding = {padding(), padding(), padding(), padding()},
            .dilation = {1, 1}};
  }
  int64_t groups() const { return is_depthwise ? in : 1; }
  Shape x() const { return {1, size, size, in}; }
  Shape w() const { return {kernel, kernel, is_depthwise ? 1 : in, out}; }
  std::string name() const {
    return fmt::format("{} {}x{} {}->{} {}x{}/{}{}",
                       model,
                       size,
                       size,
                       in,
                       out,
                       kernel,
                       kernel,
                       stride,
                       is_depthwise ? " dw" : "");
  }
};

constexpr Case kCases[] = {{"resnet50", 224, 3, 64, 7, 2, false},
                           {"resnet50", 56, 64, 64, 1, 1, false},
                           {"resnet50", 56, 64, 64, 3, 1, false},
                           {"resnet50", 56, 64, 256, 1, 1, false},
                           {"resnet50", 56, 128, 128, 3, 2, false},
                           {"resnet50", 28, 128, 128, 3, 1, false},
                           {"resnet50", 28, 512, 128, 1, 1, false},
                           {"resnet50", 14, 256, 256, 3, 1, false},
                           {"resnet50", 14, 1024, 256, 1, 1, false},
                           {"resnet50", 7, 512, 512, 3, 1, false},
                           {"resnet50", 7, 512, 2048, 1, 1, false},
                           {"mobilenetv2", 112, 32, 32, 3, 1, true},
                           {"mobilenetv2", 112, 96, 96, 3, 2, true},
                           {"mobilenetv2", 56, 144, 144, 3, 1, true},
                           {"mobilenetv2", 28, 192, 192, 3, 1, true},
                           {"mobilenetv2", 14, 384, 384, 3, 1, true},
                           {"mobilenetv2", 14, 576, 576, 3, 2, true},
                           {"mobilenetv2", 7, 960, 960, 3, 1, true}};

struct alignas(64) Line {
  char bytes[64];
};
using Memory = std::vector<Line>;

Memory memory_of(size_t bytes) { return Memory(bytes / 64 + 1); }
Memory memory_of(const Tensor& tensor) {
  const auto bytes = static_cast<size_t>(tensor.elements()) * size_of(tensor.type().dtype);
  Memory memory = memory_of(bytes);
  std::copy_n(static_cast<const char*>(tensor.data()), bytes, memory[0].bytes);
  return memory;
}

Tensor random_tensor(const TensorType& type) {
  std::mt19937 random(1);
  Tensor tensor(type);
  const bool is_byte = size_of(type.dtype) == 1;
  const double least = type.dtype == DType::kI8 ? -128 : is_byte ? 0 : 0.5e-3;
  const double range = is_byte ? 255 : 1e-3;
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i,
               least + (is_byte ? static_cast<double>(random() % 256)
                                : range * static_cast<double>(random()) / 4294967296.0));
  return tensor;
}

// A convolution as a graph of one node, its second input the weights.
struct Convolution {
  Graph graph{"convolution"};
  const Node* node = nullptr;

  Convolution(const Case& c, bool is_of_bytes) {
    auto add = [&, number = 0](DType dtype, const Shape& shape) mutable {
      return input(graph, fmt::format("{}", number++), {dtype, shape});
    };
    if (!is_of_bytes) {
      const Value x = add(DType::kF32, c.x()), w = add(DType::kF32, c.w());
      node = conv2d(x, w, c.window(), c.groups()).node;
      return;
    }
    const Value x = add(DType::kU8, c.x()), w = add(DType::kI8, c.w());
    const Value x_zero = add(DType::kU8, {});
    const Value w_zero = constant(graph, {DType::kI8, {}}, 0.0);
    const ScaledTo to{.dtype = DType::kU8,
                      .scale = add(DType::kF32, {c.out}),
                      .zero = add(DType::kU8, {}),
                      .bias = add(DType::kF32, {c.out})};
    node = conv2d_i8(x, w, x_zero, w_zero, c.window(), c.groups(), to).node;
  }
};

// Seconds of the runs of a kernel.
class Runs {
 public:
  Runs(Backend& backend, const Convolution& convolution, size_t choice)
      : node_(*convolution.node), stream_(backend.make_stream()) {
    for (const Value& value : node_.inputs)
      memories_.push_back(memory_of(value.node->is<Constant>() ? Tensor(value.type())
                                                               : random_tensor(value.type())));
    const std::vector<PackedOperand> packed = backend.packed_operands(node_, choice);
    for (const PackedOperand& operand : packed) {
      Graph pack("pack");
      const TensorType type = node_.inputs[operand.input].type();
      pack.add_output("packed", operand.pack(input(pack, "w", type)));
      memories_[operand.input] =
          memory_of(evaluate(pack, backend, {{"w", random_tensor(type)}}).at("packed"));
    }
    kernel_ = packed.empty() ? backend.instantiate(node_, choice)
                             : backend.instantiate_packed(node_, choice);
    result_ = memory_of(Tensor(node_.outputs[0]));
    workspace_ = memory_of(kernel_->workspace_bytes());
    for (const Memory& memory : memories_) inputs_.push_back(memory.data());
    output_ = result_.data();
  }

  double seconds(int64_t calls) const {
    const int64_t start = now_ns();
    for (int64_t i = 0; i < calls; ++i)
      kernel_->launch(*stream_, {inputs_, {&output_, 1}, const_cast<Line*>(workspace_.data())});
    return static_cast<double>(now_ns() - start) / 1e9 / static_cast<double>(calls);
  }
  std::vector<double> repetitions() const {
    seconds(1);
    const double once = seconds(2);
    const auto calls = std::max<int64_t>(1, static_cast<int64_t>(kSecondsOfRepetition / once));
    std::vector<double> times;
    for (int i = 0; i < kRepetitions; ++i) times.push_back(seconds(calls));
    return times;
  }

 private:
  const Node& node_;
  std::unique_ptr<Stream> stream_;
  std::vector<Memory> memories_;
  Memory result_, workspace_;
  std::unique_ptr<NodeKernel> kernel_;
  std::vector<const void*> inputs_;
  void* output_ = nullptr;
};

struct Fastest {
  std::string choice;
  std::vector<double> seconds;
};

Fastest measure(Backend& backend, const Case& c, bool is_of_bytes) {
  const Convolution convolution(c, is_of_bytes);
  const std::vector<Choice> choices = backend.candidates(*convolution.node);
  Fastest fastest;
  for (size_t i = 0; i < choices.size(); ++i) {
    std::vector<double> seconds = Runs(backend, convolution, i).repetitions();
    if (fastest.seconds.empty() || median(seconds) < median(fastest.seconds))
      fastest = {choices[i].name, std::move(seconds)};
  }
  return fastest;
}

void write(JsonWriter& json, const char* name, const Fastest& fastest) {
  json.key(name).begin_object().field("choice", fastest.choice).key("seconds").begin_array();
  for (const double seconds : fastest.seconds) json.value(seconds);
  json.end_array().end_object();
}

void report(JsonWriter& json, const Case& c, const Fastest& bytes, const Fastest& floats) {
  const double i8 = median(bytes.seconds), f32 = median(floats.seconds);
  const double products = static_cast<double>(numel(c.w())) *
                          static_cast<double>((c.size / c.stride) * (c.size / c.stride));
  fmt::print("{:<34} {:>10.1f} {:>10.1f} {:>8.2f} {:>10.1f}  {}, {}\n",
             c.name(),
             i8 * 1e6,
             f32 * 1e6,
             f32 / i8,
             2 * products / i8 / 1e9,
             bytes.choice,
             floats.choice);
  std::fflush(stdout);
  json.begin_object().field("name", c.name());
  write(json, "i8", bytes);
  write(json, "f32", floats);
  json.end_object();
}

void run(const Options& options) {
  std::string text;
  JsonWriter json(text, 1);
  json.begin_object().field("schema", "ridge.bench_conv_i8/1").field("cpu", cpu_info().model);
  json.field("threads", num_threads()).key("results").begin_array();
  fmt::print("{} threads; microseconds, medians\n", num_threads());
  fmt::print(
      "{:<34} {:>10} {:>10} {:>8} {:>10}\n", "convolution", "i8", "f32", "ratio", "i8 Gop/s");
  const auto backend = make_cpu_backend();
  for (const Case& c : kCases)
    report(json, c, measure(*backend, c, true), measure(*backend, c, false));
  json.end_array().end_object().finish();
  if (options.json.empty()) return;
  std::FILE* const file = std::fopen(options.json.c_str(), "we");
  const bool is_written = file != nullptr && std::fputs((text + "\n").c_str(), file) >= 0;
  check(file != nullptr && std::fclose(file) == 0 && is_written, "cannot write '{}'", options.json);
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  return ridge::bench::exit_code([&] {
    ridge::Options options;
    if (ridge::bench::read_options(argc,
                                   argv,
                                   ridge::kUsage,
                                   {ridge::bench::threads_option(),
                                    ridge::bench::isa_option(),
                                    ridge::bench::text_option("--json", options.json)}))
      ridge::run(options);
  });
}
