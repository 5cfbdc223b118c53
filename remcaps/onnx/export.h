// An exported network as an ONNX file (docs/embed.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "remcaps/tensors/safetensors_bytes.h"

namespace remcaps {

/// Reads what `remcaps export` writes, and writes it as ONNX, atomically, after libonnx's checker
/// and shape inference have accepted it. Couplings are rounded to `levels`: one number for every
/// routing layer that the network quantizes, or one per routing layer (0: not rounded). Empty: none
/// is rounded.
void write_onnx(const SafetensorsBytes& network, const std::filesystem::path& out,
                const std::vector<int64_t>& levels);

}  // namespace remcaps
