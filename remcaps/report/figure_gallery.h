// Pictures in rows and columns with captions.
#pragma once

#include <string>
#include <vector>

#include "remcaps/explain/picture.h"
#include "remcaps/explain/svg.h"

namespace remcaps {

struct GalleryCell {
  Picture picture;           ///< undefined: an empty place
  std::string caption = "";  ///< below it
};

struct GalleryRow {
  std::string label;
  std::vector<GalleryCell> cells;
};

struct Gallery {
  std::string title, subtitle;
  std::vector<std::string> columns;  ///< headings; may be empty
  std::vector<GalleryRow> rows;
  double cell = 92;  ///< height of a picture
  bool colour_scale = false;
  std::string scale_label = "";
};

Svg draw_gallery(const Gallery& gallery);

}  // namespace remcaps
