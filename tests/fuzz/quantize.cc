// Models that are taken apart, quantized and put together again: what comes out is a model that is
// read as well as the one that went in, and everything else is a clear refusal.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "ridge/compress/equalize.h"
#include "ridge/compress/fold_norms.h"
#include "ridge/compress/form.h"

using namespace ridge;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    compress::EditableModel model(std::as_bytes(std::span(data, size)), nullptr, "fuzz");
    compress::check_is_float(model);
    compress::fold_norms(model);
    compress::equalize(model);
    compress::QuantizedForm form{.sites = compress::find_sites(model).sites};
    std::set<std::string> chosen;
    for (const compress::Site& site : form.sites) {
      chosen.insert(site.output);
      form.scales[site.input] = compress::byte_scale({-1, 2});
    }
    const auto read_again = [](const compress::EditableModel& made) {
      const auto bytes = std::make_shared<const std::string>(made.bytes());
      const compress::EditableModel again(as_bytes(*bytes), bytes, "made");
      check_internal(again.nodes().size() == made.nodes().size(), "nodes were lost");
    };
    read_again(model);
    for (const auto method :
         {compress::QuantizeMethod::kStatic, compress::QuantizeMethod::kDynamic}) {
      form.method = method;
      read_again(compress::in_form(model, form, chosen));
      read_again(compress::with_switches(model, form).model);
    }
  } catch (const UserError&) {
    // A clear refusal is the other right answer.
  }
  return 0;
}
