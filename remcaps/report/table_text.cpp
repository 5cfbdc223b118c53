#include "remcaps/report/table_text.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace remcaps {

namespace {

// Columns that a UTF-8 text takes: continuation bytes take none.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  }));
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return left ? text + space : space + text;
}

}  // namespace

std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t left,
                    const std::set<size_t>& gaps) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& cells : rows)
    for (size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], width_of(cells[c]));
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < rows[r].size(); ++c)
      line += padded(rows[r][c], widths[c], c < left) + "  ";
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + (gaps.contains(r) ? "\n\n" : "\n");
  }
  return text;
}

std::string markdown(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::string text;
  for (const auto& cells : rows) {
    text += fmt::format("| {} |\n", fmt::join(cells, " | "));
    if (&cells != &rows.front()) continue;
    text += "|";
    for (size_t c = 0; c < cells.size(); ++c) text += c < left ? " --- |" : " ---: |";
    text += "\n";
  }
  return text + "\n";
}

}  // namespace remcaps
