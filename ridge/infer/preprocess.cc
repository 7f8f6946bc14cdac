#include "ridge/infer/preprocess.h"

#include <algorithm>
#include <filesystem>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/config/value.h"
#include "ridge/data/options.h"
#include "ridge/io/file.h"
#include "ridge/io/picture.h"

namespace ridge {
namespace {

constexpr const char* kImageNet = "imagenet";
constexpr size_t kChannels = 3;
constexpr std::string_view kSides = "1..4096", kShortSides = "1..65535";
static_assert(data::kMostPictureSize == 4096 && kMaxPictureSide == 65535);

// The numbers that torchvision's models of ImageNet were trained with.
Preprocess imagenet() {
  return {.resize = 256,
          .crop = 224,
          .mean = {0.485, 0.456, 0.406},
          .deviation = {0.229, 0.224, 0.225}};
}

std::vector<ConfigKey> keys_of(Preprocess& p) {
  return {{"resize", &p.resize, "", kShortSides, "pixels of the short side"},
          {"crop", &p.crop, "", kSides, "height and width of the middle that is taken"},
          {"scale", &p.scale, "", "1e-6..1e6", "value of the brightest pixel"},
          {"mean", &p.mean, "", "-1e6..1e6", "what is subtracted, a channel each"},
          {"deviation", &p.deviation, "", "1e-6..1e6", "what is divided by, a channel each"},
          {"layout", &p.layout, "", names_of(p.layout), "order of the axes"},
          {"channels", &p.channels, "", names_of(p.channels), "order of the channels"}};
}

const ConfigKey& find_key(const std::vector<ConfigKey>& keys, const TomlEntry& entry) {
  const auto key = std::ranges::find(keys, entry.key, &ConfigKey::name);
  if (key != keys.end() && !entry.is_table) return *key;
  std::vector<std::string> names;
  for (const ConfigKey& each : keys) names.emplace_back(each.name);
  const std::string near = did_you_mean(entry.key, names);
  throw UserError(fmt::format("{}: unknown key '{}'", entry.key_place, shown_text(entry.key)),
                  near.empty() ? "docs/onnx.md lists the keys" : near);
}

void assign_entry(const ConfigKey& key, const TomlEntry& entry) {
  const bool fits = assign(key, entry.value);
  const auto* const list = std::get_if<std::vector<double>*>(&key.field);
  if (fits && (list == nullptr || (*list)->size() == kChannels)) return;
  throw UserError(fmt::format("{}: {}: got {}, expected {}",
                              entry.value_place,
                              key.name,
                              shown_text(value_text(entry.value)),
                              expectation(key)),
                  list == nullptr ? "docs/onnx.md lists the keys" : "give three, a channel each");
}

void check_sizes(const Preprocess& p, const std::string& path) {
  const auto check_there = [&](const char* key, int64_t value, int64_t usual) {
    if (value == 0)
      throw UserError(fmt::format("{}: '{}' is missing", path, key),
                      fmt::format("write {} = {}", key, usual));
  };
  check_there("resize", p.resize, imagenet().resize);
  check_there("crop", p.crop, imagenet().crop);
  if (p.crop > p.resize)
    throw UserError(fmt::format("{}: a crop of {} pixels is larger than the picture, whose short "
                                "side is resized to {}",
                                path,
                                p.crop,
                                p.resize),
                    fmt::format("write resize = {}", p.crop));
}

}  // namespace

Preprocess load_preprocess(const std::string& name) {
  if (name == kImageNet) return imagenet();
  std::error_code ignored;
  if (!name.ends_with(".toml") && !std::filesystem::exists(name, ignored))
    throw UserError(fmt::format("--preprocess '{}' is no name and no file", shown_text(name)),
                    fmt::format("write {} or name a FILE.toml", kImageNet));
  Preprocess result;
  const std::vector<ConfigKey> keys = keys_of(result);
  for (const TomlEntry& entry : read_toml(read_file(name, kLongestToml), name))
    assign_entry(find_key(keys, entry), entry);
  check_sizes(result, name);
  return result;
}

}  // namespace ridge
