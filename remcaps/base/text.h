// Numbers, shapes and bytes as text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace remcaps {

/// "12.3 MiB"
std::string human_bytes(double bytes);

/// "30,729,999"
std::string with_commas(int64_t value);

/// "3x32x32"
std::string shape_text(std::span<const int64_t> shape);

/// ASCII letters in lower case, all other bytes as they are.
std::string lower_case(std::string text);

/// Whether JSON, and with it metadata and reports, can hold the text.
bool is_utf8(std::string_view text);

std::string base64(std::string_view bytes);

/// What stands before the first line break: libtorch's messages have advice or a stack below it.
std::string_view first_line(std::string_view text);

/// Whole numbers in a row, both ends among them.
struct NumberRange {
  int64_t first = 0, last = 0;

  bool operator==(const NumberRange&) const = default;
};

/// "3,7,10..14": numbers from 0 on and rising ranges of them. Nothing where it is anything else.
std::optional<std::vector<NumberRange>> parse_ranges(std::string_view text);

}  // namespace remcaps
