// Makes rows of the events of a Kineto trace.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ridge/doctor/read/kineto_marks.h"
#include "ridge/doctor/read/kineto_stream.h"
#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

struct KinetoArgs;

class KinetoRows : public KinetoSink {
 public:
  explicit KinetoRows(Trace& trace);

  void add_event(const KinetoEvent& event) override;
  void add_member(std::string_view key, const JsonSpan& value) override;
  void warn(std::string_view text) override { builder_.warn(text); }

  /// Does what needs all rows. Call it once, behind the last event; the trace is not sorted then.
  void finish();

 private:
  // Facts of a runtime call that apply to the work which it launched.
  struct Call {
    bool is_blocking = false;
    int64_t bytes = -1;
    uint32_t launch = Trace::kNone;  // in call_launches_
  };

  void add_stretch(const KinetoEvent& event);
  void add_end(const KinetoEvent& event);
  void add_metadata(const KinetoEvent& event);
  void add_device(const JsonSpan& value);
  void add_row(const KinetoEvent& event, EventKind kind, const KinetoArgs& args);
  void add_details(size_t row, const KinetoArgs& args);
  void add_operator_details(size_t row, const KinetoArgs& args);
  void note_call(size_t row, const KinetoArgs& args);
  uint32_t text(std::string_view plain);
  uint32_t text(const JsonSpan& value);
  uint32_t list_text(const JsonSpan& value);
  uint32_t lane(const KinetoEvent& event, EventKind kind, const KinetoArgs& args);

  void close_marks();
  void drop_lost_rows();
  void start_at_zero();
  void name_lanes();
  void join_calls();

  Trace& trace_;
  TraceBuilder builder_;
  std::map<std::tuple<int64_t, int64_t, int32_t>, uint32_t> lanes_;
  std::map<std::pair<int64_t, int64_t>, std::string> lane_names_;
  std::vector<KinetoMark> marks_;
  std::unordered_map<int64_t, Call> calls_;  // by correlation, those that know something
  std::vector<Launch> call_launches_;
  size_t text_bytes_ = 0;
  int64_t base_ns_ = 0;
  bool has_base_ = false;
};

}  // namespace ridge::doctor
