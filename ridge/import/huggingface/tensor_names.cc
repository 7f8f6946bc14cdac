#include "ridge/import/huggingface/tensor_names.h"

#include <algorithm>
#include <cstring>

#include "ridge/base/cpu/transposed_copy.h"
#include "ridge/base/error.h"
#include "ridge/base/named_list.h"

namespace ridge {
namespace {

/// The order of a tensor's axes there, next to Ridge's.
enum class Axes : uint8_t {
  kSame,
  kOutputsFirst,   ///< (O, I) for (I, O).
  kChannelsFirst,  ///< (O, I, H, W) for (H, W, I, O).
};

/// A tensor here and there. `{}` stands for a number, the same in both.
struct NameRow {
  std::string own, theirs;
  Axes axes = Axes::kSame;
};

/// The names of a library for a kind of model. The first row's tensor is the one by which its files
/// are known.
struct NameTable {
  TensorNames names = TensorNames::kRidge;
  std::vector<NameRow> rows = {};
  std::string optional_prefix = {};        ///< Files may leave it out of all names.
  std::vector<std::string> constant = {};  ///< Tensors there that say nothing, `{}` as above.
  std::string head = {};                   ///< A tensor there that is the first row's once more.
};

void add_layer_norm(NameTable& table, const std::string& own, const std::string& theirs) {
  table.rows.push_back({own + ".scale", theirs + ".weight"});
  table.rows.push_back({own + ".shift", theirs + ".bias"});
}

void add_linear(NameTable& table,
                const std::string& own,
                const std::string& theirs,
                Axes axes = Axes::kSame) {
  table.rows.push_back({own + ".weight", theirs + ".weight", axes});
  table.rows.push_back({own + ".bias", theirs + ".bias"});
}

// A convolution without bias and its batch norm.
void add_conv_norm(NameTable& table,
                   const std::string& own,
                   const std::string& conv,
                   const std::string& norm) {
  table.rows.push_back({own + ".conv.weight", conv + ".weight", Axes::kChannelsFirst});
  add_layer_norm(table, own + ".norm", norm);
  table.rows.push_back({own + ".norm.mean", norm + ".running_mean"});
  table.rows.push_back({own + ".norm.variance", norm + ".running_var"});
  table.constant.push_back(norm + ".num_batches_tracked");
}

// Conv1D of transformers has weights (I, O), as Ridge has. The rows of c_attn are those of queries,
// keys and values one after another, head by head, as in packed attention.
NameTable gpt2_table() {
  NameTable table{.names = TensorNames::kHuggingFace, .optional_prefix = "transformer."};
  table.rows.push_back({"tokens.weight", "transformer.wte.weight"});
  table.rows.push_back({"positions.weight", "transformer.wpe.weight"});
  const std::string own = "blocks.{}.", theirs = "transformer.h.{}.";
  add_layer_norm(table, own + "norm1", theirs + "ln_1");
  add_linear(table, own + "attn.qkv", theirs + "attn.c_attn");
  add_linear(table, own + "attn.out", theirs + "attn.c_proj");
  add_layer_norm(table, own + "norm2", theirs + "ln_2");
  add_linear(table, own + "mlp.up", theirs + "mlp.c_fc");
  add_linear(table, own + "mlp.down", theirs + "mlp.c_proj");
  add_layer_norm(table, "norm", "transformer.ln_f");
  table.constant = {theirs + "attn.bias", theirs + "attn.masked_bias"};  // causal masks
  table.head = "lm_head.weight";
  return table;
}

std::string block_of(int stage, int block) { return fmt::format("stages.{}.{}.", stage, block); }

NameTable torchvision_resnet_table() {
  NameTable table{.names = TensorNames::kTorchvision};
  add_conv_norm(table, "stem", "conv1", "bn1");
  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < 2; ++block) {
      const std::string own = block_of(stage, block);
      const std::string theirs = fmt::format("layer{}.{}.", stage + 1, block);
      add_conv_norm(table, own + "first", theirs + "conv1", theirs + "bn1");
      add_conv_norm(table, own + "second", theirs + "conv2", theirs + "bn2");
      add_conv_norm(table, own + "shortcut", theirs + "downsample.0", theirs + "downsample.1");
    }
  add_linear(table, "head", "fc", Axes::kOutputsFirst);
  return table;
}

NameTable huggingface_resnet_table() {
  NameTable table{.names = TensorNames::kHuggingFace};
  const auto add = [&](const std::string& own, const std::string& theirs) {
    add_conv_norm(table, own, theirs + "convolution", theirs + "normalization");
  };
  add("stem", "resnet.embedder.embedder.");
  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < 2; ++block) {
      const std::string own = block_of(stage, block);
      const std::string theirs = fmt::format("resnet.encoder.stages.{}.layers.{}.", stage, block);
      add(own + "first", theirs + "layer.0.");
      add(own + "second", theirs + "layer.1.");
      add(own + "shortcut", theirs + "shortcut.");
    }
  add_linear(table, "head", "classifier.1", Axes::kOutputsFirst);
  return table;
}

const std::vector<NameTable>& tables_of(nn::ModelKind kind) {
  static const std::vector<NameTable> none,
      gpt = {gpt2_table()}, resnet = {huggingface_resnet_table(), torchvision_resnet_table()};
  if (kind == nn::ModelKind::kGpt) return gpt;
  return kind == nn::ModelKind::kResNet18 ? resnet : none;
}

const NameTable* find_table(nn::ModelKind kind, TensorNames names) {
  for (const NameTable& table : tables_of(kind))
    if (table.names == names) return &table;
  return nullptr;
}

// The number that `{}` of the pattern stands for, empty where it has none; nothing where the name
// does not match.
std::optional<std::string> matched(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find("{}");
  if (at == std::string_view::npos)
    return pattern == name ? std::optional(std::string()) : std::nullopt;
  const std::string_view before = pattern.substr(0, at), behind = pattern.substr(at + 2);
  if (name.size() <= before.size() + behind.size() || !name.starts_with(before) ||
      !name.ends_with(behind))
    return std::nullopt;
  name.remove_prefix(before.size());
  name.remove_suffix(behind.size());
  const bool is_number =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? std::optional(std::string(name)) : std::nullopt;
}

std::string filled(std::string pattern, const std::string& number) {
  const size_t at = pattern.find("{}");
  return at == std::string::npos ? pattern : pattern.replace(at, 2, number);
}

/// A name on the other side, and the order of axes there.
struct Renamed {
  std::string name;
  Axes axes = Axes::kSame;
};

std::optional<Renamed> renamed(const NameTable& table,
                               std::string_view name,
                               std::string NameRow::* from,
                               std::string NameRow::* to) {
  for (const NameRow& row : table.rows)
    if (const auto number = matched(row.*from, name))
      return Renamed{filled(row.*to, *number), row.axes};
  return std::nullopt;
}

bool says_nothing(const NameTable& table, std::string_view name) {
  return std::any_of(table.constant.begin(), table.constant.end(), [&](const std::string& pattern) {
    return matched(pattern, name).has_value();
  });
}

std::vector<int64_t> order_of(Axes axes, bool to_theirs) {
  if (axes == Axes::kOutputsFirst) return {1, 0};
  return to_theirs ? std::vector<int64_t>{3, 2, 0, 1} : std::vector<int64_t>{2, 3, 1, 0};
}

// Adds the tensor under that name, with its axes in the order that the other side has. A tensor of
// another rank than it should have goes as it is: whoever reads it refuses its type.
void add_tensor(RenamedTensors& to, const TensorView& tensor, const Renamed& as, bool to_theirs) {
  TensorView view{as.name, tensor.type, tensor.data};
  if (as.axes != Axes::kSame) {
    const std::vector<int64_t> perm = order_of(as.axes, to_theirs);
    if (std::ssize(perm) == tensor.type.rank()) {
      to.copies.push_back(transposed_copy(tensor.type, tensor.data, perm));
      view.type = to.copies.back().type();
      view.data = to.copies.back().data();
    }
  }
  to.tensors.push_back(std::move(view));
}

void check_head(const NameTable& table,
                const TensorView& head,
                const SafetensorsView& file,
                const std::string& prefix,
                std::string_view source) {
  const TensorView& first = file.tensor(table.rows[0].theirs.substr(prefix.size()));
  const bool is_same =
      head.type == first.type && std::memcmp(head.data, first.data, first.bytes().size()) == 0;
  check(is_same,
        "{}: '{}' differs from '{}': a model here has one table for both",
        source,
        head.name,
        first.name);
}

}  // namespace

std::string foreign_name(nn::ModelKind kind, TensorNames names, const std::string& own) {
  const NameTable* table = find_table(kind, names);
  if (table == nullptr) return own;
  const auto theirs = renamed(*table, own, &NameRow::own, &NameRow::theirs);
  return theirs ? theirs->name : own;
}

std::optional<RenamedTensors> with_own_names(const SafetensorsView& file,
                                             nn::ModelKind kind,
                                             std::string_view source) {
  for (const NameTable& table : tables_of(kind)) {
    const std::string& known_by = table.rows[0].theirs;
    std::string prefix;  // what the file leaves out
    if (!file.contains(known_by)) prefix = table.optional_prefix;
    if (!file.contains(known_by.substr(prefix.size()))) continue;
    RenamedTensors renamed_tensors{.names = table.names};
    std::vector<std::string> left;
    for (const TensorView& tensor : file.tensors()) {
      const std::string whole = prefix + tensor.name;
      if (const auto own = renamed(table, whole, &NameRow::theirs, &NameRow::own))
        add_tensor(renamed_tensors, tensor, *own, /*to_theirs=*/false);
      else if (tensor.name == table.head)
        check_head(table, tensor, file, prefix, source);
      else if (!says_nothing(table, whole))
        left.push_back(tensor.name);
    }
    if (!left.empty())
      throw UserError(fmt::format("{}: a model of kind '{}' has nothing like {}",
                                  source,
                                  name_of(kind),
                                  named_list(left)),
                      "give the weights of such a model alone");
    return renamed_tensors;
  }
  return std::nullopt;
}

RenamedTensors with_foreign_names(std::vector<TensorView> own,
                                  nn::ModelKind kind,
                                  TensorNames names) {
  RenamedTensors result{.names = names};
  if (names == TensorNames::kRidge) {
    result.tensors = std::move(own);
    return result;
  }
  const NameTable* table = find_table(kind, names);
  if (table == nullptr) {
    std::vector<std::string> known{std::string(name_of(TensorNames::kRidge))};
    for (const NameTable& each : tables_of(kind)) known.emplace_back(name_of(each.names));
    throw UserError(
        fmt::format("{} has no names for a model of kind '{}'", name_of(names), name_of(kind)),
        fmt::format("give names of {}", named_list(known)));
  }
  for (const TensorView& tensor : own) {
    const auto theirs = renamed(*table, tensor.name, &NameRow::own, &NameRow::theirs);
    check(theirs.has_value(), "{} has no name for '{}'", name_of(names), tensor.name);
    add_tensor(result, tensor, *theirs, /*to_theirs=*/true);
  }
  // Counts of batches, which these libraries read and Ridge has not, where the norm itself is
  // there.
  constexpr std::string_view kCount = ".num_batches_tracked", kMean = ".running_mean";
  const Tensor zero({DType::kI64, {}});
  const size_t count = result.tensors.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = result.tensors[i].name;
    if (!name.ends_with(kMean)) continue;
    result.copies.push_back(zero);
    const std::string counted = name.substr(0, name.size() - kMean.size()) + std::string(kCount);
    result.tensors.push_back({counted, zero.type(), result.copies.back().data()});
  }
  return result;
}

}  // namespace ridge
