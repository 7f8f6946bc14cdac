#include "ridge/backend/cuda/driver/captured_work.h"

namespace ridge::cuda {
namespace {

Owned<GraphHandle> capture(Stream& stream, FunctionRef<void()> queue) {
  const Driver& driver = stream.device().driver();
  // Thread-local: what other threads do meanwhile (a loader's copies) is theirs.
  driver.check(driver.stream_begin_capture(stream.handle(), CaptureMode::kThreadLocal));
  GraphHandle graph = nullptr;
  const auto end = [&] {
    const Status status = driver.stream_end_capture(stream.handle(), &graph);
    return std::pair(status,
                     Owned<GraphHandle>(stream.device_ref(), graph, &Driver::graph_destroy));
  };
  try {
    queue();
  } catch (...) {
    end();  // or the stream would take no work again
    throw;
  }
  auto [status, owned] = end();
  driver.check(status);
  return std::move(owned);
}

}  // namespace

CapturedWork::CapturedWork(Stream& stream, FunctionRef<void()> queue) {
  const Driver& driver = stream.device().driver();
  const Owned<GraphHandle> graph = capture(stream, queue);
  driver.check(driver.graph_get_nodes(graph.get(), nullptr, &nodes_));
  GraphExecHandle exec = nullptr;
  driver.check(driver.graph_instantiate(&exec, graph.get(), 0), "{} nodes", nodes_);
  exec_ = {stream.device_ref(),
           exec,
           &Driver::graph_exec_destroy,
           Owned<GraphExecHandle>::Before::kWaitForWork};
}

void CapturedWork::launch(Stream& stream) const {
  const Driver& driver = stream.device().driver();
  driver.check(driver.graph_launch(exec_.get(), stream.handle()), "{} nodes", nodes_);
}

}  // namespace ridge::cuda
