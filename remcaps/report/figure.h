// `remcaps figure`: the paper's figures as SVG, with their data as CSV.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "remcaps/base/text.h"
#include "remcaps/explain/saliency.h"
#include "remcaps/explain/svg.h"
#include "remcaps/explain/tree_graph.h"
#include "remcaps/report/shown_runs.h"

namespace remcaps {

struct FigureOptions : RunSelection {
  /// Places in the split of the images to show; empty: the first image of each class.
  std::vector<NumberRange> images;
  std::vector<int64_t> levels;  ///< "levels": the K to try; empty: 2 to 31
  std::string layer;            ///< saliency: routing layer to look at; empty: the last with a grid
  /// Which connections are part of a tree; its `of` also chooses saliency maps: the paper's
  /// couplings x activations, or contributions.
  TreeOptions tree;
  Placement placement = Placement::kReceptiveFields;  ///< saliency
  double range = 0.25;  ///< "perturbations": how far each pose dimension is moved
  std::string
      masks;  ///< "object-share", "faithfulness": the masks file; empty: the one beside the data
};

/// A table that becomes a CSV file.
struct FigureTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;

  template <typename... Values>
  void add(const Values&... values) {
    rows.push_back({cell(values)...});
  }
  /// RFC 4180; a value is quoted if it needs to be.
  std::string csv() const;

 private:
  static std::string cell(const std::string& text) { return text; }
  static std::string cell(const char* text) { return text; }
  static std::string cell(int64_t value) { return std::to_string(value); }
  static std::string cell(double value);  ///< empty if it is not finite
};

struct Figure {
  std::string title;
  Svg drawing;
  FigureTable table;
};

struct FigureKind {
  std::string name;
  std::string paper;  ///< numbers of the paper's figures it remakes; "none: ..." for other ones
  std::string about;  ///< one line on what it shows
  std::string needs;  ///< which runs it takes
  std::function<Figure(const FigureOptions&)> make;
};

/// In the paper's order.
const std::vector<FigureKind>& figure_kinds();

/// UsageError suggests the nearest name.
const FigureKind& figure_kind(const std::string& name);

struct FigureFiles {
  std::filesystem::path svg, csv;
};

/// Writes <folder>/<name>.svg and .csv atomically. If that file shows other runs, the new one is
/// called <name>-2, <name>-3 and so on: only a figure of the same runs is overwritten.
FigureFiles write_figure(const std::string& name, const FigureOptions& options,
                         const std::filesystem::path& folder);

}  // namespace remcaps
