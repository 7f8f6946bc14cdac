#include "ridge/config/keys.h"

namespace ridge {
namespace {

using Keys = std::vector<ConfigKey>;

constexpr std::string_view kMany = "0..1000000000000";  // counts of steps, samples, epochs
constexpr std::string_view kSome = "1..1048576";        // sizes of layers and batches
constexpr std::string_view kReals = "-1e30..1e30";
constexpr std::string_view kNames = "";  // those of the field's enum, which config_keys() fills in

void add_model(Keys& keys, nn::ModelOptions& m) {
  const Keys rows = {
      {"model.kind", &m.kind, "", kNames, "what is trained"},
      {"model.dtype", &m.dtype, "", "f32|f64", "of the parameters; f64 is for checking numerics"},
      {"model.hidden", &m.mlp.hidden, "mlp", kSome, "width of each hidden layer; [] for none"},
      {"model.outputs",
       &m.mlp.outputs,
       "mlp",
       "0..1048576",
       "classes, or columns of a regression; 0: as many as the data have"},
      {"model.dropout", &m.mlp.dropout, "mlp", "0..<1", "share dropped after each hidden layer"},
      {"model.widths", &m.cnn.widths, "cnn", kSome, "channels of each stage", 1},
      {"model.blocks", &m.cnn.blocks, "cnn", "1..1024", "residual blocks of a stage"},
      {"model.stem_stride", &m.cnn.stem_stride, "cnn", "1..4", "of the first convolution: 1, 2, 4"},
      {"model.outputs",
       &m.cnn.outputs,
       "cnn",
       "0..1048576",
       "classes; 0: as many as the data have"},
      {"model.dropout", &m.cnn.dropout, "cnn", "0..<1", "share dropped before the last layer"},
      {"model.batch_norm", &m.cnn.batch_norm, "cnn", "", "normalise over the batch"},
      {"model.momentum",
       &m.cnn.momentum,
       "cnn",
       "0..1",
       "weight of a batch in the running statistics of batch norm"},
      {"model.outputs",
       &m.resnet18.outputs,
       "resnet18",
       "0..1048576",
       "classes; 0: as many as the data have"},
      {"model.width", &m.resnet18.width, "resnet18", kSome, "channels of the first of four stages"},
      {"model.stem",
       &m.resnet18.stem,
       "resnet18",
       kNames,
       "3x3 for small images, or 7x7 of stride 2 and a max pool"},
      {"model.momentum",
       &m.resnet18.momentum,
       "resnet18",
       "0..1",
       "weight of a batch in the running statistics of batch norm"},
      {"model.outputs",
       &m.mobilenetv2.outputs,
       "mobilenetv2",
       "0..1048576",
       "classes; 0: as many as the data have"},
      {"model.multiplier",
       &m.mobilenetv2.multiplier,
       "mobilenetv2",
       "0.01..100",
       "of every layer's channels"},
      {"model.dropout",
       &m.mobilenetv2.dropout,
       "mobilenetv2",
       "0..<1",
       "share dropped before the last layer"},
      {"model.momentum",
       &m.mobilenetv2.momentum,
       "mobilenetv2",
       "0..1",
       "weight of a batch in the running statistics of batch norm"},
      {"model.vocab", &m.gpt.vocab, "gpt", "2..16777216", "number of tokens; 256 for bytes"},
      {"model.context", &m.gpt.context, "gpt", kSome, "tokens that the model sees at most"},
      {"model.layers", &m.gpt.layers, "gpt", "1..1024", "decoder blocks"},
      {"model.heads", &m.gpt.heads, "gpt", "1..1024", "attention heads; they divide the width"},
      {"model.width", &m.gpt.width, "gpt", kSome, "numbers a token"},
      {"model.dropout", &m.gpt.dropout, "gpt", "0..<1", "share dropped in each block"},
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

void add_optimizer(Keys& keys, nn::OptimizerOptions& o, nn::ScheduleOptions& s) {
  const Keys rows = {
      {"optimizer.kind", &o.kind, "", kNames, "how gradients change the parameters"},
      {"optimizer.lr", &o.lr, "", "0..1000", "peak learning rate"},
      {"optimizer.beta1", &o.beta1, "adamw", "0..<1", "decay of the mean of gradients"},
      {"optimizer.beta2", &o.beta2, "adamw", "0..<1", "decay of the mean of their squares"},
      {"optimizer.eps", &o.eps, "adamw", "1e-30..1", "added to the root of the second"},
      {"optimizer.momentum", &o.momentum, "sgd", "0..<1", "share of the last update kept"},
      {"optimizer.weight_decay", &o.weight_decay, "", "0..100", "decoupled from the gradient"},
      {"optimizer.clip", &o.clip, "", "0..1e30", "largest norm of the whole gradient; 0: no limit"},
      {"schedule.kind", &s.kind, "", kNames, "learning rate over the steps, after the warm-up"},
      {"schedule.warmup", &s.warmup, "", kMany, "steps of a linear rise to the peak"},
      {"schedule.final_ratio",
       &s.final_ratio,
       "cosine",
       "0..1",
       "learning rate of the last step over the peak"},
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

void add_data(Keys& keys, data::DataOptions& d) {
  const Keys rows = {
      {"data.kind", &d.kind, "", kNames, "the form of the samples"},
      {"data.path",
       &d.path,
       "idx|images|table|text",
       "",
       "training data: a file of images or rows, a folder with one subfolder a class, or texts"},
      {"data.labels", &d.labels, "idx", "", "file of the labels"},
      {"data.eval_path",
       &d.eval_path,
       "idx|images|table|text",
       "",
       "data to evaluate on; empty: a part of `path`"},
      {"data.eval_labels", &d.eval_labels, "idx", "", "file of their labels"},
      {"data.eval_fraction",
       &d.eval_fraction,
       "",
       "0..<1",
       "share of the samples to evaluate on, where `eval_path` is empty"},
      {"data.extensions",
       &d.extensions,
       "text",
       "",
       "ends of the names of files to read, such as \".md\"; []: every file"},
      {"data.context", &d.context, "text", kSome, "tokens a sample, at most"},
      {"data.samples",
       &d.text_samples,
       "text",
       kNames,
       "cut the text into windows of `context`, or take each line or file, padded to `context`"},
      {"data.target", &d.target, "table", "", "column to predict"},
      {"data.task", &d.task, "table", kNames, "what the target is: a class, a number"},
      {"data.size", &d.size, "images", "1..16384", "height and width after the crop"},
      {"data.crop",
       &d.crop,
       "images",
       kNames,
       "a random part, the middle, or the whole image, resized"},
      {"data.flip", &d.flip, "idx|images", "", "mirror half of the training images"},
      {"data.shift", &d.shift, "idx", "0..1024", "move training images by up to so many pixels"},
      {"data.mean", &d.mean, "idx|images", kReals, "of each channel of x / 255; []: 0"},
      {"data.deviation", &d.deviation, "idx|images", "1e-30..1e30", "x / 255 - mean is over it"},
      {"data.on_error",
       &d.on_error,
       "images",
       kNames,
       "what an unreadable file does: it is skipped and counted, or it ends the run"},
      {"data.samples", &d.samples, "random", "1..1000000000000", "number of samples"},
      {"data.shape", &d.shape, "random", kSome, "of the x of one sample", 1},
      {"data.classes", &d.classes, "random", "2..16777216", "labels, or tokens in the vocabulary"},
      {"data.tokens", &d.tokens, "random", "", "x and y are tokens of that shape"},
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

void add_loader(Keys& keys, data::LoaderOptions& l) {
  const Keys rows = {
      {"loader.workers", &l.workers, "", "0..256", "threads that load ahead; 0: none"},
      {"loader.prefetch", &l.prefetch, "", "1..4096", "batches that are ready or being made"},
      {"loader.cache",
       &l.cache,
       "",
       "",
       "keep samples of data.kind images in memory once read, before augmentation"},
      {"loader.pad",
       &l.pad,
       "",
       kNames,
       "lines and files are computed with all of their padding, or as far as a batch's longest"},
      {"loader.buckets", &l.buckets, "", "", "lines and files of like length meet in a batch"},
      {"loader.tokens",
       &l.tokens,
       "",
       kMany,
       "in buckets, as many lines or files a step as have room in so many tokens; 0: train.batch"},
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

void add_run(Keys& keys, TrainConfig& config) {
  RunOptions& t = config.train;
  CheckpointOptions& c = config.checkpoint;
  const Keys rows = {
      {"train.seed",
       &t.seed,
       "",
       "0..9223372036854775807",
       "of initial weights, the order of samples, dropout and augmentation"},
      {"train.out", &t.out, "", "", "folder of checkpoints and metrics; empty: nothing is written"},
      {"train.device",
       &t.device,
       "",
       "",
       "where it runs: cpu, cuda or cuda:1 for a GPU, ref for the slow reference"},
      {"train.precision",
       &t.precision,
       "",
       kNames,
       "of matrix products and convolutions; tf32, which GPUs have, rounds what is multiplied to "
       "11 "
       "bits"},
      {"train.loss_scale",
       &t.loss_scale,
       "",
       "1..16777216",
       "factor on the gradient in fp16, at first: a power of two; it halves and skips the update "
       "when "
       "the gradient overflows, and doubles after 2000 steps that did not"},
      {"train.f32_modules",
       &t.f32_modules,
       "",
       "",
       "modules that keep f32 where `precision` is lower, such as \"blocks.0.attn\""},
      {"train.batch", &t.batch, "", kSome, "samples a step"},
      {"train.micro",
       &t.micro,
       "",
       kSome,
       "micro-batches that a step is computed in, one after the other: less memory, same sums"},
      {"train.loss_chunks",
       &t.loss_chunks,
       "",
       "1..1024",
       "parts that logits, loss and their gradients are computed in, one after the other: less "
       "memory where the vocabulary is large"},
      {"train.memory_limit",
       &t.memory_limit,
       "",
       kMany,
       "MiB for state and arena; micro-batches, a loss in parts and recomputed results keep within "
       "it; 0: none"},
      {"train.epochs", &t.epochs, "", kMany, "passes over the data"},
      {"train.steps", &t.steps, "", kMany, "updates; above 0 it wins over `epochs`"},
      {"train.eval_every", &t.eval_every, "", kMany, "steps between evaluations; 0: each epoch"},
      {"train.eval_batch",
       &t.eval_batch,
       "",
       "0..1048576",
       "samples at a time in evaluation; 0: as a micro-batch"},
      {"train.shuffle", &t.shuffle, "", "", "another order of the samples each epoch"},
      {"train.drop_last", &t.drop_last, "", "", "leave out the last batch where it is not full"},
      {"train.kernels",
       &t.kernels,
       "",
       kNames,
       "kernels that are picked by time: those with the CPU's bits (a GPU has them for products, "
       "norms and loops), or the fastest of all that are right, whose last bits depend on the "
       "machine; auto: same_bits on the CPU, fastest on a GPU"},
      {"train.capture",
       &t.capture,
       "",
       kNames,
       "capture the launches of a step once and replay them as one: auto does where the device "
       "can"},
      {"metrics.every",
       &config.metrics.every,
       "",
       "1..1000000",
       "steps from one line to the next; evaluations, checkpoints and the end have one besides"},
      {"checkpoint.every",
       &c.every,
       "",
       kMany,
       "steps between checkpoints; 0: only at the end and when stopped"},
      {"checkpoint.keep", &c.keep, "", "1..1000000", "newest checkpoints that stay"},
      {"checkpoint.best", &c.best, "", "", "also keep the one of the best evaluation"},
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

}  // namespace

std::vector<ConfigKey> config_keys(TrainConfig& config) {
  Keys keys;
  add_model(keys, config.model);
  add_optimizer(keys, config.optimizer, config.schedule);
  add_data(keys, config.data);
  add_loader(keys, config.loader);
  add_run(keys, config);
  for (ConfigKey& key : keys)
    if (const auto* field = std::get_if<NamedField>(&key.field)) key.allowed = field->names();
  return keys;
}

bool has_choice(std::string_view choices, std::string_view name) {
  return place_of(choices, name).has_value();
}

bool is_active(const ConfigKey& key, const std::vector<ConfigKey>& keys) {
  if (key.kinds.empty()) return true;
  for (const ConfigKey& other : keys)
    if (other.leaf() == "kind" && other.table() == key.table())
      return has_choice(key.kinds, std::get<NamedField>(other.field).name());
  return true;
}

}  // namespace ridge
