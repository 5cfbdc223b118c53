#include "remcaps/report/onnx_export.h"

#include "remcaps/base/files.h"
#include "remcaps/onnx/export.h"
#include "remcaps/report/model_export.h"

namespace remcaps {

void export_onnx(LoadedRun& run, const std::filesystem::path& out,
                 const std::vector<int64_t>& levels) {
  prepare_output(out);
  const std::string bytes = network_for_runtime(run, "become ONNX");
  write_onnx({std::as_bytes(std::span(bytes)), run.weights.string()}, out, levels);
}

}  // namespace remcaps
