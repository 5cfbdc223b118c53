#include "remcaps/report/table_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <sstream>

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

using Cells = std::vector<std::string>;

// The text in lines of at most `width` columns, if its words are not longer.
Cells wrapped(const std::string& text, size_t width) {
  Cells lines = {""};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string& line = lines.back();
    if (line.empty())
      line = word;
    else if (width_of(line) + 1 + width_of(word) <= width)
      line += " " + word;
    else
      lines.push_back(word);
  }
  return lines;
}

std::vector<size_t> widths_of(const std::vector<Cells>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const Cells& cells : rows)
    for (size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], width_of(cells[c]));
  return widths;
}

// Columns of a line with these cells and two spaces between them.
size_t line_width(const std::vector<size_t>& widths, const std::vector<size_t>& shown) {
  size_t sum = 0;
  for (const size_t c : shown) sum += widths[c] + 2;
  return sum - 2;
}

}  // namespace

std::string fitted(const std::vector<Cells>& rows, size_t left, size_t labels,
                   std::optional<size_t> columns, const std::set<size_t>& gaps) {
  std::vector<size_t> shown(rows.front().size());
  std::iota(shown.begin(), shown.end(), 0);
  if (!columns || line_width(widths_of(rows), shown) <= *columns) return aligned(rows, left, gaps);
  constexpr size_t kLeast = 20;  // columns for a text, however wide the labels are
  const std::vector<size_t> of_values = widths_of({rows.begin() + 1, rows.end()});
  shown.resize(labels);
  const size_t taken = line_width(of_values, shown) + 2;
  const size_t room = std::max(*columns - std::min(*columns, taken), kLeast);
  // The lines of each cell. A heading is as narrow as what it heads.
  std::vector<std::vector<Cells>> cells;
  std::vector<size_t> widths(rows.front().size());
  for (const Cells& row : rows) {
    auto& of_row = cells.emplace_back();
    for (size_t c = 0; c < row.size(); ++c) {
      of_row.push_back(
          wrapped(row[c], &row == &rows.front() ? std::min(of_values[c], room) : room));
      for (const std::string& line : of_row.back()) widths[c] = std::max(widths[c], width_of(line));
    }
  }
  std::string text;
  for (size_t next = labels; next < widths.size();) {
    shown.resize(labels);
    do shown.push_back(next++);
    while (next < widths.size() && line_width(widths, shown) + 2 + widths[next] <= *columns);
    std::vector<Cells> lines;
    std::set<size_t> line_gaps;
    for (size_t r = 0; r < rows.size(); ++r) {
      size_t height = 1;
      for (const size_t c : shown) height = std::max(height, cells[r][c].size());
      for (size_t line = 0; line < height; ++line) {
        Cells& parts = lines.emplace_back();
        for (const size_t c : shown)
          parts.push_back(line < cells[r][c].size() ? cells[r][c][line] : "");
      }
      if (gaps.contains(r)) line_gaps.insert(lines.size() - 1);
    }
    if (!text.empty()) text += "\n";
    text += aligned(lines, left, line_gaps);
  }
  return text;
}

std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t left,
                    const std::set<size_t>& gaps) {
  const std::vector<size_t> widths = widths_of(rows);
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
