// Values that are fine one by one but do not go together.
#include <bit>

#include "ridge/base/error.h"
#include "ridge/config/text.h"

namespace ridge {
namespace {

using data::DataKind;

class Checker {
 public:
  explicit Checker(const LoadedConfig& loaded) : config_(loaded.config), origins_(loaded.origins) {}

  void run() const {
    check_run();
    check_model();
    check_data();
    check_samples();
  }

 private:
  // The message begins with the place of `key`, where it was given.
  void need(bool holds, std::string_view key, std::string message, std::string fix) const {
    if (holds) return;
    const auto origin = origins_.find(key);
    const std::string place = origin == origins_.end() ? "configuration" : origin->second.where;
    throw UserError(fmt::format("{}: {}", place, message), std::move(fix));
  }

  void check_run() const {
    const RunOptions& run = config_.train;
    need(run.steps > 0 || run.epochs > 0,
         "train.steps",
         "train.epochs and train.steps are both 0, so there is nothing to do",
         "give one of them, such as epochs = 10 in [train]");
    need(run.micro <= run.batch,
         origins_.contains("train.micro") ? "train.micro" : "train.batch",
         fmt::format("train.micro ({}) is more than train.batch ({}): a micro-batch needs a sample",
                     run.micro,
                     run.batch),
         "raise the batch or lower micro");
    need(run.precision == Precision::kF32 || config_.model.dtype == DType::kF32,
         "train.precision",
         fmt::format("train.precision '{}' needs model.dtype 'f32': its parameters are kept in f32",
                     name_of(run.precision)),
         "take one of the two keys out");
    need(run.precision != Precision::kTf32 || run.is_on_gpu(),
         "train.precision",
         fmt::format("train.precision 'tf32' is arithmetic of GPUs, and train.device is '{}'",
                     run.device),
         "set train.device to 'cuda', or train.precision to 'f32' or 'bf16'");
    need(std::has_single_bit(static_cast<uint64_t>(run.loss_scale)),
         "train.loss_scale",
         fmt::format("train.loss_scale ({}) is no power of two, and other factors would round",
                     run.loss_scale),
         "give a power of two, such as 65536");
    need(config_.checkpoint.every == 0 || !run.out.empty(),
         "checkpoint.every",
         "checkpoint.every asks for checkpoints, but train.out names no folder for them",
         "give train.out");
    need(!config_.checkpoint.best || !run.out.empty(),
         "checkpoint.best",
         "checkpoint.best asks for a checkpoint, but train.out names no folder for it",
         "give train.out");
  }

  void check_model() const {
    const nn::GptOptions& gpt = config_.model.gpt;
    need(config_.model.kind != nn::ModelKind::kGpt || gpt.width % gpt.heads == 0,
         "model.heads",
         fmt::format("model.heads ({}) does not divide model.width ({})", gpt.heads, gpt.width),
         "choose a width that is a multiple of the heads");
  }

  void check_data() const {
    const data::DataOptions& data = config_.data;
    need(config_.loader.pad == data::Padding::kContext || data.is_ragged(),
         "loader.pad",
         "loader.pad 'longest' has no padding to leave out: all samples have the same length",
         "take it out, or use data.kind 'text' with data.samples 'lines' or 'files'");
    need(!config_.loader.cache || data.is_cacheable(),
         "loader.cache",
         fmt::format("loader.cache changes nothing: samples of data.kind '{}' are never read again",
                     name_of(data.kind)),
         "take it out, or use data.kind 'images'");
    check_buckets();
    if (data.kind == DataKind::kRandom) return;
    const std::string kind = fmt::format("data.kind '{}'", name_of(data.kind));
    need(!data.path.empty(), "data.kind", kind + " needs data.path", "give data.path");
    need(data.kind != DataKind::kIdx || !data.labels.empty(),
         "data.kind",
         kind + " needs data.labels",
         "give data.labels, the file of the labels");
    need(data.kind != DataKind::kIdx || data.eval_path.empty() == data.eval_labels.empty(),
         data.eval_path.empty() ? "data.eval_labels" : "data.eval_path",
         "of data.eval_path and data.eval_labels only one is given",
         "give both or none");
    need(data.kind != DataKind::kTable || !data.target.empty(),
         "data.target",
         "data.target is empty",
         "name the column to predict");
    need(data.mean.size() == data.deviation.size() || data.mean.empty() || data.deviation.empty(),
         "data.mean",
         fmt::format("data.mean has {} items and data.deviation {}",
                     data.mean.size(),
                     data.deviation.size()),
         "give one of each for every channel");
  }

  void check_buckets() const {
    const data::LoaderOptions& loader = config_.loader;
    if (!loader.buckets && loader.tokens == 0) return;
    const char* const key = loader.buckets ? "loader.buckets" : "loader.tokens";
    need(config_.data.is_ragged() && config_.train.shuffle,
         key,
         fmt::format("{} needs samples of different lengths, and train.shuffle", key),
         "take it out, or use data.kind 'text' with data.samples 'lines' or 'files'");
    need(loader.pad == data::Padding::kLongest,
         key,
         fmt::format("{} gains nothing while samples are padded to the context", key),
         "set loader.pad to 'longest'");
    need(loader.tokens == 0 || loader.tokens >= config_.data.context,
         "loader.tokens",
         fmt::format("loader.tokens ({}) has no room for one sample of data.context ({}) tokens",
                     loader.tokens,
                     config_.data.context),
         "give some times the context");
    need(loader.tokens == 0 || config_.train.memory_limit == 0,
         "loader.tokens",
         "loader.tokens and train.memory_limit exclude each other: the limit is kept by taking "
         "batches of train.batch samples apart",
         "take one of the two keys out");
  }

  // Checks that the data give the samples that the model takes.
  void check_samples() const {
    const data::DataOptions& data = config_.data;
    const bool random_tokens = data.kind == DataKind::kRandom && data.tokens;
    const bool tokens = data.kind == DataKind::kText || random_tokens;
    const nn::ModelKind model = config_.model.kind;
    const bool takes_tokens = model == nn::ModelKind::kGpt;
    need(takes_tokens == tokens,
         "model.kind",
         fmt::format("model.kind '{}' {}, but data.kind '{}' gives {}",
                     name_of(model),
                     takes_tokens ? "takes tokens" : "takes numbers",
                     name_of(data.kind),
                     tokens ? "tokens" : "numbers"),
         takes_tokens ? "use text, or random with tokens = true" : "use model.kind 'gpt'");
    if (model != nn::ModelKind::kMlp && !takes_tokens) check_images();
    if (takes_tokens) check_tokens(random_tokens);
  }

  void check_images() const {
    const data::DataOptions& data = config_.data;
    need(data.kind != DataKind::kTable,
         "model.kind",
         fmt::format("model.kind '{}' takes images, not rows of a table",
                     name_of(config_.model.kind)),
         "use model.kind 'mlp'");
    need(data.kind != DataKind::kRandom || data.shape.size() == 3,
         "data.shape",
         fmt::format("model.kind '{}' takes images, but data.shape has {} sizes",
                     name_of(config_.model.kind),
                     data.shape.size()),
         "give height, width and channels, such as shape = [28, 28, 1]");
  }

  void check_tokens(bool random) const {
    const data::DataOptions& data = config_.data;
    const nn::GptOptions& gpt = config_.model.gpt;
    need(!random || data.shape.size() == 1,
         "data.shape",
         fmt::format("a sample of tokens has one size, but data.shape has {}", data.shape.size()),
         "give the number of tokens, such as shape = [128]");
    const int64_t length = random ? data.shape[0] : data.context;
    need(length <= gpt.context,
         random ? "data.shape" : "data.context",
         fmt::format("samples of {} tokens do not fit model.context ({})", length, gpt.context),
         "raise model.context or shorten the samples");
    need(!random || data.classes <= gpt.vocab,
         "data.classes",
         fmt::format("data.classes ({}) is beyond model.vocab ({})", data.classes, gpt.vocab),
         "raise model.vocab");
  }

  const TrainConfig& config_;
  const ConfigOrigins& origins_;
};

}  // namespace

void check_config(const LoadedConfig& loaded) { Checker(loaded).run(); }

}  // namespace ridge
