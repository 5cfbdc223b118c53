// `remcaps figure`: the paper's figures as SVG, with their data as CSV.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "remcaps/base/text.h"
#include "remcaps/explain/svg.h"
#include "remcaps/explain/tree_graph.h"

namespace remcaps {

struct FigureOptions {
  /// Run folders or weights files; "RUN@epoch-0012" picks another checkpoint of a run.
  std::vector<std::string> runs;
  std::string data;  ///< folder of the data sets; empty: where each run found its own
  torch::Device device = torch::kCPU;
  std::string split = "test";  ///< whose images are measured and shown
  int64_t limit = 0;           ///< measure only the first so many images; 0: all
  std::vector<NumberRange>
      images;  ///< places in the split to show; empty: the first image of each class
  std::vector<int64_t> levels;  ///< "levels": the K to try; empty: 2 to 31
  std::string layer;            ///< saliency: routing layer to look at; empty: the last with a grid
  TreeOptions tree;
  double range = 0.25;  ///< "perturbations": how far each pose dimension is moved
  std::string masks;    ///< "object-share": the masks file; empty: the one beside the data
};

/// A table that becomes a CSV file.
struct FigureTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;

  template <typename... Values>
  void add(const Values&... values) {
    rows.push_back({cell(values)...});
  }
  /// RFC 4180: quoted where a value needs it.
  std::string csv() const;

 private:
  static std::string cell(const std::string& text) { return text; }
  static std::string cell(const char* text) { return text; }
  static std::string cell(int64_t value) { return std::to_string(value); }
  static std::string cell(double value);  ///< empty for what is not finite
};

struct Figure {
  std::string title;
  Svg drawing;
  FigureTable table;
};

struct FigureKind {
  std::string name;
  std::string paper;  ///< the paper's figures it stands for, counted through; "none: ..." otherwise
  std::string about;  ///< one line for people
  std::string needs;  ///< what runs it takes
  std::function<Figure(const FigureOptions&)> make;
};

/// In the paper's order.
const std::vector<FigureKind>& figure_kinds();

/// UsageError suggests the nearest name.
const FigureKind& figure_kind(const std::string& name);

struct FigureFiles {
  std::filesystem::path svg, csv;
};

/// Writes <folder>/<name>.svg and .csv atomically.
FigureFiles write_figure(const std::string& name, const FigureOptions& options,
                         const std::filesystem::path& folder);

}  // namespace remcaps
