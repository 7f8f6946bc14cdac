#include "ridge/cli/train_request.h"

#include "ridge/base/error.h"

namespace ridge {

TrainRequest make_train_request(const TrainOptions& options) {
  const LoadedConfig loaded = load_config_options(options.config,
                                                  {{"train.steps", options.steps, "--steps"},
                                                   {"train.seed", options.seed, "--seed"},
                                                   {"train.out", options.out, "--out"}});
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
