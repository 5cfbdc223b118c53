// Numbers, shapes and bytes as text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace remcaps {

/// "12.3 MiB"
std::string human_bytes(double bytes);

/// "30,729,999"
std::string with_commas(int64_t value);

/// "3x32x32"
std::string shape_text(std::span<const int64_t> shape);

std::string base64(std::string_view bytes);

}  // namespace remcaps
