// Metadata of the safetensors files in a run folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "remcaps/tensors/safetensors.h"

namespace remcaps {

/// Error if the metadata "format" is not `expected`.
void check_format(const SafetensorsFile& file, const std::string& expected);

/// The metadata value of a key. Error if it is missing.
const std::string& metadata_value(const SafetensorsFile& file, const std::string& key);

/// The same, parsed. Error if it is not valid JSON.
nlohmann::json metadata_json(const SafetensorsFile& file, const std::string& key);

}  // namespace remcaps
