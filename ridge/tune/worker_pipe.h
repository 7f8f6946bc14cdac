// A process of ridge that a target's variants or guards run in, so that a crash, a hang or a lack
// of memory costs no more than a trial: it answers lines of JSON, one for each request.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/json_fields.h"
#include "ridge/io/json.h"

namespace ridge {

struct WorkerOptions {
  std::string program;         ///< Path of ridge; its verb `trial-worker` answers.
  double answer_seconds = 60;  ///< A worker that is silent for longer hangs.
  int64_t deadline_ns = 0;     ///< By now_ns(): no answer is waited for beyond it; 0: none.
};

/// This side of it. The process ends with this object.
class WorkerPipe {
 public:
  /// Starts `program` with these words, the verb first. UserError where no process can be started.
  WorkerPipe(const WorkerOptions& options, const std::vector<std::string>& words);
  WorkerPipe(const WorkerPipe&) = delete;
  WorkerPipe& operator=(const WorkerPipe&) = delete;
  ~WorkerPipe() { end(); }

  /// The answer to a request. VariantFailed where it is an error or the process has ended,
  /// TrialStopped at the deadline and with stop_requested(), which end the process.
  JsonValue ask(const std::string& request);
  int process_id() const { return process_; }
  /// Sets WorkerOptions::deadline_ns anew.
  void work_until(int64_t until_ns) { options_.deadline_ns = until_ns; }
  /// Ends the process, and all memory of it.
  void end();
  /// False once it was ended, or found to have ended.
  bool is_running() const { return process_ >= 0; }

 private:
  std::string read_line();
  std::string how_it_ended();

  WorkerOptions options_;
  pid_t process_ = -1;
  int to_ = -1, from_ = -1;
  std::string pending_;  ///< Read, but not yet a whole line.
};

/// The other side: writes the fields of the answer to each line of `in` until it ends. What
/// `answer` throws is the answer {"error": "what is wrong; the fix"}.
void serve_requests(std::istream& in,
                    std::ostream& out,
                    const std::function<void(const JsonValue&, JsonWriter&)>& answer);

/// Reads the fields of an object of an answer; UserError for one that is missing or of another
/// type.
class AnswerReader {
 public:
  explicit AnswerReader(const JsonValue& object) : object_(object) {}

  void operator()(const char* key, bool& out) const { out = at(key).as_bool(key); }
  void operator()(const char* key, int64_t& out) const { out = at(key).as_integer(key); }
  void operator()(const char* key, double& out) const { out = at(key).as_number(key); }
  void operator()(const char* key, std::string& out) const { out = at(key).as_string(key); }
  void operator()(const char* key, std::vector<std::string>& out) const {
    for (const JsonValue& text : at(key).as_array(key)) out.push_back(text.as_string(key));
  }
  void operator()(const char* key, std::vector<double>& out) const {
    for (const JsonValue& number : at(key).as_array(key)) out.push_back(number.as_number(key));
  }
  /// At most `most` of them.
  template <HasFields T>
  void operator()(const char* key, std::vector<T>& out, size_t most) const {
    const JsonValue::Array& list = at(key).as_array(key);
    check(list.size() <= most, "{} of '{}', where there may be {}", list.size(), key, most);
    for (const JsonValue& item : list) T::fields(out.emplace_back(), AnswerReader(item));
  }
  void known(const char* key, std::optional<int64_t>& out) const {
    if (const JsonValue* value = object_.find(key)) out = value->as_integer(key);
  }

 private:
  const JsonValue& at(const char* key) const { return object_.at(key, "answer"); }

  const JsonValue& object_;
};

template <HasFields T>
T read_fields(const JsonValue& object) {
  T value;
  T::fields(value, AnswerReader(object));
  return value;
}

}  // namespace ridge
