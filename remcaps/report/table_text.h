// Rows of cells as text with aligned columns, or as a Markdown table.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace remcaps {

/// Each column is as wide as its widest cell; the first `left` columns are flush left, the others
/// flush right. `gaps` has the rows that an empty line follows.
std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t left,
                    const std::set<size_t>& gaps = {});

/// The same for a terminal of so many columns; the first row is the heading. If the table is wider,
/// headings and texts are wrapped at spaces, and what still does not fit stands below, with the
/// first `labels` columns again.
std::string fitted(const std::vector<std::vector<std::string>>& rows, size_t left, size_t labels,
                   std::optional<size_t> columns, const std::set<size_t>& gaps = {});

/// The first row is the heading.
std::string markdown(const std::vector<std::vector<std::string>>& rows, size_t left);

}  // namespace remcaps
