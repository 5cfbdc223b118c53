// JSON that goes out: to stdout, files and metadata.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace remcaps {

/// The value as text, in one line or indented. File names may be any bytes: what is not UTF-8 of
/// them is shown as U+FFFD, where dump() throws, after the work that the text is about.
std::string json_text(const nlohmann::json& value, int indent = -1);

}  // namespace remcaps
