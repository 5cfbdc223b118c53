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

/// Whether the text is valid UTF-8: only then can JSON, metadata and reports hold it.
bool is_utf8(std::string_view text);

/// A line of a CSV file, with its line break. A value is quoted if it needs to be (RFC 4180).
std::string csv_row(std::span<const std::string> values);

std::string base64(std::string_view bytes);

/// The text up to the first line break. libtorch's messages go on with advice or a stack trace.
std::string_view first_line(std::string_view text);

/// Consecutive whole numbers, both ends included.
struct NumberRange {
  int64_t first = 0, last = 0;

  bool operator==(const NumberRange&) const = default;
};

/// Reads "3,7,10..14": numbers from 0 on, and ranges of them. Nothing if the text is something
/// else.
std::optional<std::vector<NumberRange>> parse_ranges(std::string_view text);

}  // namespace remcaps
