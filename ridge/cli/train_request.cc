#include "ridge/cli/train_request.h"

#include "ridge/base/error.h"
#include "ridge/train/config_text.h"

namespace ridge {

TrainRequest make_train_request(const TrainOptions& options) {
  std::vector<ConfigFlag> flags;
  for (const std::string& text : options.set) flags.push_back(parse_set(text));
  const auto add = [&](const std::string& value, const char* key, const char* flag) {
    if (!value.empty()) flags.push_back({key, value, flag});
  };
  add(options.steps, "train.steps", "--steps");
  add(options.seed, "train.seed", "--seed");
  add(options.out, "train.out", "--out");
  add(options.device, "train.device", "--device");
  const LoadedConfig loaded = load_config_file(options.config, flags);
  if (options.resume == "auto" && loaded.config.train.out.empty())
    throw UserError("--resume auto looks for checkpoints in train.out, which is empty",
                    "give --out, or --resume with the folder of a checkpoint");
  if (options.resume != "no" && !options.init.empty())
    throw UserError("--resume and --init both say where the parameters come from",
                    "give one of them");
  return {.config = loaded.config,
          .config_toml = to_toml(loaded, settings()),
          .resume = options.resume,
          .init = options.init,
          .trace = options.trace,
          .verify = options.verify};
}

}  // namespace ridge
