// Rows of cells as text with aligned columns, or as a Markdown table.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace remcaps {

/// Each column is as wide as its widest cell; the first `left` columns are flush left, the others
/// flush right. `gaps` has the rows that an empty line follows.
std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t left,
                    const std::set<size_t>& gaps = {});

/// The first row is the heading.
std::string markdown(const std::vector<std::vector<std::string>>& rows, size_t left);

}  // namespace remcaps
