// Suggestions for misspelt names ("unknown network dr-capnet; did you mean dr-capsnet?").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace remcaps {

/// The candidate with the smallest edit distance to `name`; empty if none is close.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// "; did you mean X?" or, if nothing is close, "; known: A, B, C".
std::string suggestion(std::string_view name, const std::vector<std::string>& candidates);

/// Whether `name` matches a shell-like pattern with * and ? (no brackets).
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace remcaps
