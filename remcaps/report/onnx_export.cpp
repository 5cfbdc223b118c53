#include "remcaps/report/onnx_export.h"

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/onnx/export.h"
#include "remcaps/report/model_export.h"

namespace remcaps {
namespace {

struct RemovedFile {
  std::filesystem::path path;
  ~RemovedFile() {
    std::error_code error;
    std::filesystem::remove(path, error);
  }
};

}  // namespace

void export_onnx(LoadedRun& run, const std::filesystem::path& out,
                 const std::vector<int64_t>& levels) {
  prepare_output(out);
  const PackedTensors packed = pack_tensors(weights_of(*run.model));
  const WeightsInfo info{run.recipe, run.context, run.class_names, run.epoch};
  load_weights(*run.model, unpack_tensors(packed, run.weights.string()), run.weights.string());
  const auto graph = checked_graph(*run.model, info, packed, out);
  check(graph.has_value(), "{}: {} has no graph, so that it cannot become ONNX",
        run.weights.string(), run.recipe.model);
  RemovedFile packed_file{out};
  packed_file.path += ".packed";
  save_packed_weights(packed_file.path, packed, info, graph, "{}");
  write_onnx(packed_file.path, out, levels);
}

}  // namespace remcaps
