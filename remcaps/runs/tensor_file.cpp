#include "remcaps/runs/tensor_file.h"

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"

namespace remcaps {

using nlohmann::json;

const std::string& metadata_value(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  check(found != file.metadata().end(), "{}: its metadata has no \"{}\"", file.path().string(),
        key);
  return found->second;
}

json metadata_json(const SafetensorsFile& file, const std::string& key) {
  try {
    return json::parse(metadata_value(file, key));
  } catch (const json::exception&) {
    fail("{}: its metadata \"{}\" is not valid JSON", file.path().string(), key);
  }
}

void check_format(const SafetensorsFile& file, const std::string& expected) {
  const auto found = file.metadata().find("format");
  const std::string format = found == file.metadata().end() ? "none" : found->second;
  check(format == expected, "{}: its format is {}; expected {}", file.path().string(), format,
        expected);
}

}  // namespace remcaps
