#include "remcaps/base/error.h"
#include "remcaps/onnx/export.h"

namespace remcaps {

void write_onnx(const SafetensorsBytes&, const std::filesystem::path& out,
                const std::vector<int64_t>&) {
  fail("{}: this program was built without libonnx (Debian's libonnx-dev)", out.string());
}

}  // namespace remcaps
