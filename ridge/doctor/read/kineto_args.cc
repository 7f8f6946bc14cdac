#include "ridge/doctor/read/kineto_args.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ridge/doctor/read/kineto_kinds.h"

namespace ridge::doctor {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

struct Field {
  std::string_view key;
  JsonSpan KinetoArgs::* value;
};

constexpr std::array kFields = {
    Field{"correlation", &KinetoArgs::correlation},
    Field{"device", &KinetoArgs::device},
    Field{"stream", &KinetoArgs::stream},
    Field{"grid", &KinetoArgs::grid},
    Field{"block", &KinetoArgs::block},
    Field{"registers per thread", &KinetoArgs::registers},
    Field{"shared memory", &KinetoArgs::shared_bytes},
    Field{"graph id", &KinetoArgs::graph},
    Field{"bytes", &KinetoArgs::bytes},
    Field{"size", &KinetoArgs::size},
    Field{"flops", &KinetoArgs::flops},
    Field{"Input Dims", &KinetoArgs::shapes},
    Field{"Input dims", &KinetoArgs::shapes},
    Field{"Input type", &KinetoArgs::types},
    Field{"Input Strides", &KinetoArgs::strides},
    Field{"Call stack", &KinetoArgs::stack},
    Field{"stack", &KinetoArgs::stack},
    Field{"CallFrom", &KinetoArgs::caller},
    Field{"cuda_sync_kind", &KinetoArgs::sync_kind},
    Field{"wait_on_stream", &KinetoArgs::waits_on_stream},
    Field{"wait_on_cuda_event_record_corr_id", &KinetoArgs::waits_on_correlation},
    Field{"wait_on_cuda_event_id", &KinetoArgs::event},
    Field{"In msg nelems", &KinetoArgs::elements_in},
    Field{"Out msg nelems", &KinetoArgs::elements_out},
    Field{"dtype", &KinetoArgs::dtype},
    Field{"name", &KinetoArgs::name},
};

/// The first three numbers of "[8, 16, 5]".
void set_sizes(const JsonSpan& value, int32_t (&sizes)[3]) {
  size_t at = 0;
  for (int32_t& size : sizes) {
    const size_t begin = value.text.find_first_of("0123456789", at);
    if (begin == std::string_view::npos) return;
    at = std::min(value.text.find_first_not_of("0123456789", begin), value.text.size());
    const JsonSpan number{.kind = JsonSpan::Kind::kBare,
                          .text = value.text.substr(begin, at - begin)};
    size = static_cast<int32_t>(number_in(number, 0, kMaxInt32, 0));
  }
}

}  // namespace

KinetoArgs parse_args(const JsonSpan& object) {
  KinetoArgs args;
  for_members(object, [&](std::string_view key, const JsonSpan& value) {
    for (const Field& field : kFields)
      if (field.key == key) {
        args.*field.value = value;
        return;
      }
  });
  return args;
}

Launch launch_of(const KinetoArgs& args) {
  Launch launch;
  set_sizes(args.grid, launch.grid);
  set_sizes(args.block, launch.block);
  launch.registers = static_cast<int32_t>(number_in(args.registers, 0, kMaxInt32, 0));
  launch.shared_bytes = number_in(args.shared_bytes, 0, kMaxInt64, 0);
  launch.graph = number_in(args.graph, 0, kMaxInt64, 0);
  return launch;
}

Sync sync_of(const KinetoArgs& args) {
  return {.what = sync_kind(args.sync_kind.text),
          .waits_on_stream = number_in(args.waits_on_stream, 0, kMaxInt64, -1),
          .waits_on_correlation = number_in(args.waits_on_correlation, 0, kMaxInt64, -1),
          .event = number_in(args.event, 0, kMaxInt64, -1)};
}

int64_t collective_bytes(const KinetoArgs& args) {
  constexpr int64_t kMost = kMaxInt64 / 64;
  const int64_t elements =
      std::max(number_in(args.elements_in, 0, kMost, 0), number_in(args.elements_out, 0, kMost, 0));
  return elements * element_bytes(args.dtype.text);
}

int64_t number_in(const JsonSpan& value, int64_t low, int64_t high, int64_t otherwise) {
  if (!value.is_given()) return otherwise;
  const auto number = whole_number(value);
  return number && *number >= low && *number <= high ? *number : otherwise;
}

std::string tidy_list(const JsonSpan& value) {
  if (value.kind != JsonSpan::Kind::kArray) return plain_text(value);
  std::string tidy;
  bool is_inside = false, is_escaped = false;
  for (char c : value.text) {
    const bool is_space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (c == '"' && !is_escaped) is_inside = !is_inside;
    is_escaped = c == '\\' && !is_escaped;
    if (is_inside || !is_space) tidy += c;
    if (c == ',' && !is_inside) tidy += ' ';
  }
  return tidy;
}

}  // namespace ridge::doctor
