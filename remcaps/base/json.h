// JSON: writing it to stdout, files and metadata, and reading whole numbers.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace remcaps {

/// The value as text, in one line or indented. Bytes that are not UTF-8 (file names may have them)
/// become U+FFFD; dump() would throw, and the work that the text is about would be lost.
std::string json_text(const nlohmann::json& value, int indent = -1);

/// A whole number. Throws json::exception if the value is of another kind; get<int64_t>() would
/// convert 1e30, which is undefined.
int64_t whole_number(const nlohmann::json& value);

/// The same for a list of them.
std::vector<int64_t> whole_numbers(const nlohmann::json& list);

}  // namespace remcaps
