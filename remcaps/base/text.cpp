#include "remcaps/base/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace remcaps {

std::string human_bytes(double bytes) {
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string with_commas(int64_t value) {
  const std::string digits = std::to_string(value < 0 ? -value : value);
  std::string text = value < 0 ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string lower_case(std::string text) {
  for (char& letter : text)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return text;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("{}", fmt::join(shape.begin(), shape.end(), "x"));
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<uint8_t>(text[at]);
    const size_t length = first < 0x80                     ? 1
                          : first >= 0xC2 && first <= 0xDF ? 2
                          : first >= 0xE0 && first <= 0xEF ? 3
                          : first >= 0xF0 && first <= 0xF4 ? 4
                                                           : 0;
    if (length == 0 || length > text.size() - at) return false;
    uint32_t code = length == 1 ? first : first & (0xFFu >> (length + 1));
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<uint8_t>(text[at + k]);
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3Fu);
    }
    // Longer than needed, half of a UTF-16 pair, beyond the last code point.
    if (length == 3 && (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF))) return false;
    if (length == 4 && (code < 0x10000 || code > 0x10FFFF)) return false;
    at += length;
  }
  return true;
}

std::string csv_row(std::span<const std::string> values) {
  std::string row;
  for (const std::string& value : values) {
    if (&value != values.data()) row += ',';
    if (value.find_first_of(",\"\r\n") == std::string::npos) {
      row += value;
      continue;
    }
    row += '"';
    for (const char c : value) row += c == '"' ? std::string("\"\"") : std::string(1, c);
    row += '"';
  }
  return row + '\n';
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<uint8_t>(bytes[at + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

std::optional<std::vector<NumberRange>> parse_ranges(std::string_view text) {
  const auto number = [](std::string_view word) -> std::optional<int64_t> {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool whole = error == std::errc() && end == word.data() + word.size();
    return whole && value >= 0 ? std::optional(value) : std::nullopt;
  };
  std::vector<NumberRange> ranges;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t dots = part.find("..");
    const auto first = number(part.substr(0, dots));
    const auto last = dots == std::string_view::npos ? first : number(part.substr(dots + 2));
    if (!first || !last || *last < *first) return std::nullopt;
    ranges.push_back({*first, *last});
    if (comma == std::string_view::npos) return ranges;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace remcaps
