#include <ridge/ridge.h>

#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

namespace {

std::string text_of(const ridge::DataSpec& spec) {
  std::string text = spec.name + " " + std::string(name_of(spec.dtype)) + "[";
  for (const ridge::Dim& dim : spec.dims)
    text += (&dim == spec.dims.data() ? "" : ",") +
            (dim.name.empty() ? std::to_string(dim.size) : dim.name);
  return text + "]";
}

void run(const char* path) {
  ridge::Session session(path);
  for (const ridge::DataSpec& spec : session.inputs())
    std::printf("in   %s\n", text_of(spec).c_str());
  for (const ridge::DataSpec& spec : session.outputs())
    std::printf("out  %s\n", text_of(spec).c_str());

  // Compiles for a batch of two: the first run is as fast as any.
  session.bind({{"N", 2}});
  const std::vector<float> x = {1, 2, 3, 4, 0, 0, 0, 0};
  const std::map<std::string, ridge::Array> outputs = session.run({{"x", {x, {2, 4}}}});

  const ridge::Array& y = outputs.at("y");
  for (const float each : y.values<float>()) std::printf("%.6f\n", each);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc == 2 ? argv[1] : "model.onnx");
  } catch (const ridge::UserError& error) {
    std::fprintf(stderr, "%s\nfix: %s\n", error.message().c_str(), error.fix().c_str());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
