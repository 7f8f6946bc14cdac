// TensorBoard event files: TFRecord framing around protocol buffers, written by hand.
#pragma once

#include <filesystem>

#include "ridge/io/append_file.h"
#include "ridge/run/observer.h"

namespace ridge {

/// Scalars train/loss, train/grad_norm, train/lr, train/samples_per_s, train/step_ms, eval/loss and
/// eval/accuracy over the steps; on a GPU, of what it reports, gpu/watts, gpu/joules (of the run so
/// far), gpu/memory_bytes, gpu/sm_mhz and gpu/celsius. Writing allocates nothing.
class TensorBoardWriter {
 public:
  /// Opens a new file `events.out.tfevents.*` in `folder`, which is made where it is missing. A
  /// resumed run tells TensorBoard to forget what it has after `last_step`. UserError when the file
  /// cannot be written.
  TensorBoardWriter(const std::filesystem::path& folder, int64_t last_step);

  void write(const StepReport& report);
  void write(const EvalReport& report);
  void flush() { file_.flush(); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace ridge
