#include "ridge/run/backends.h"

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/ref/ref_backend.h"

namespace ridge {

std::vector<std::string> backend_names() { return {"cpu", "ref"}; }

std::unique_ptr<Backend> make_backend(std::string_view name) {
  if (name == "cpu") return make_cpu_backend();
  if (name == "ref") return make_ref_backend();
  throw UserError(fmt::format("unknown device '{}'", name), did_you_mean(name, backend_names()));
}

}  // namespace ridge
