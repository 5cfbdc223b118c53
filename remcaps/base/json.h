// Writing JSON: to stdout, files and metadata.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace remcaps {

/// The value as text, in one line or indented. Bytes that are not UTF-8 (file names may have them)
/// become U+FFFD; dump() would throw, and the work that the text is about would be lost.
std::string json_text(const nlohmann::json& value, int indent = -1);

}  // namespace remcaps
